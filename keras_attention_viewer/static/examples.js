// What a head reads in all measured sentences: its strongest rows, and some that were drawn by chance.

import { headColor } from "./colors.js";
import { el } from "./dom.js";
import { weightText } from "./weights.js";

const GROUP_NAMES = {
  strongest: ["Strongest rows", "The rows with the largest weight on a token that is no start or end token."],
  random: ["Rows by chance", "Drawn once: the same for all heads and, while the sentences stay as long, at all steps."],
};

export function createExamples() {
  const heading = el("h3");
  const lists = Object.keys(GROUP_NAMES).map((key) => el("ol", { "data-group": key, "aria-label": GROUP_NAMES[key][0] }));
  const root = el("section", { class: "examples", "aria-label": "Rows of all measured sentences", hidden: true }, heading,
    el("div", { class: "example-groups" }, ...lists.map((list) => el("div", {},
      el("p", {}, el("strong", { text: GROUP_NAMES[list.dataset.group][0] })),
      el("p", { class: "quiet", text: GROUP_NAMES[list.dataset.group][1] }), list))));

  let shown = 0;

  async function update(reader, model) {
    const turn = ++shown;
    const { kind, layer, heads, state } = model;
    const examples = heads.length === 1 ? await examplesOf(reader, model) : null;
    if (turn !== shown) return;
    const known = examples?.heads[kind.name]?.[layer]?.[heads[0]];
    root.hidden = !known;
    if (!known) return;
    const { sentences } = examples;
    heading.textContent = `Layer ${layer + 1} head ${heads[0] + 1} in ${sentences.length === 1 ? "the one measured sentence" : `all ${sentences.length} measured sentences`}`;
    for (const list of lists) {
      list.replaceChildren(...known[list.dataset.group].map((row) => exampleRow(row, sentences, kind, heads[0], state.read)));
    }
  }

  return { root, update };
}

/** The examples of a step: the first of its sentences has them. */
async function examplesOf(reader, { header, place: { run, sentence, step } }) {
  if (header.examples) return header.examples;
  const first = run.sentences.find((one) => one.target === sentence.target && one.steps.includes(step));
  const read = await reader.header(run.name, first.tag, step).catch(() => null); // the picture does without
  return read?.examples ?? null;
}

/** A piece without the mark of a word's beginning; a mark alone stays. */
function bareText(text) {
  return text.replace(/^(▁|##)(?=.)/u, "");
}

/** The word of a row, and the sentence that it reads, with the weights behind its words. */
function exampleRow([number, row, read], sentences, kind, head, isRead) {
  const sentence = sentences[number];
  const asks = kind.rows === "decoder" ? sentence[isRead ? "decoder_input" : "decoder_output"] : sentence[kind.rows];
  const weights = new Map(read);
  const hasMarks = sentence[kind.columns].some((text) => text.startsWith("▁"));
  const words = sentence[kind.columns].map((text, i) => {
    const weight = weights.get(i);
    const written = bareText(text);
    const gap = i === 0 || (hasMarks && !/^(▁|<)/u.test(text)) || text.startsWith("##") ? "" : " ";
    return [gap, weight === undefined ? el("span", { text: written })
      : el("mark", { style: `--head: ${headColor(head)}; --share: ${weight}` }, written,
        el("span", { class: "number", text: ` ${weightText(weight, false)}` }))];
  });
  return el("li", { "data-sentence": number }, el("b", { dir: "auto", title: asks.join(" ") }, bareText(asks[row])), " reads ",
    el("span", { class: "sentence-read", dir: "auto" }, ...words.flat()));
}
