// One sentence that says what one sees, a legend of its colours, and what to keep in mind.

import { weightColor } from "./colors.js";
import { el } from "./dom.js";
import { isAligned } from "./state.js";
import { TERMS, term } from "./terms.js";

const KIND_TERMS = { encoder: "encoder's self-attention", decoder: "decoder's self-attention", cross: "cross-attention" };

/** The sentence about a model's picture, as parts: texts, and [text, explanation] pairs. */
export function sentenceOf(model) {
  const { state, kind, layer, heads, panes, against } = model;
  const one = heads.length === 1;
  const numbers = heads.map((head) => head + 1);
  const named = one ? ` ${numbers[0]}` : heads.length === kind.heads ? "" : `s ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}`;
  const start = [["Layer", TERMS.layer], ` ${layer + 1}, `, ...(named || one ? [] : [`all ${kind.heads} `]),
    [named || one ? "head" : "heads", TERMS.head], `${named} of the `, [KIND_TERMS[kind.name], TERMS[kind.name]], ": "];
  const measure = state.contribution ? ["contribution", TERMS.contribution] : ["weight", TERMS.weight];
  if (isAligned(model)) {
    const reads = state.contribution ? "contributes most to it" : "is read most for it";
    return [...start, `each line goes from a word of the translation to the source word that ${reads} (`, measure, ")."];
  }
  const [first, second] = state.view === "matrix" ? ["on the left", "above"] : ["on the left", "on the right"];
  const read = kind.columns === "source" ? `source words ${second}` : `words before it, ${second}`;
  const what = kind.rows !== "decoder" ? `the source word ${first} reads the ${read}`
    : `when ${one ? "it" : "the model"} ${state.read ? "has just read" : "predicts"} the word ${first}, `
      + `${one ? "it reads" : "they read"} the ${read}`;
  if (panes[0].picture.signed) {
    return [...start, `${what}; orange = more `, measure, ` than ${against.name}, blue = less.`];
  }
  return [...start, `${what}; the stronger the colour, the more `, measure, "."];
}

/** The sentence with its terms, and below it the legend. */
export function createExplanation() {
  const sentence = el("p", { class: "sentence" });
  const scale = el("span", { class: "scale-bar", "aria-hidden": "true" });
  const [low, high, note] = Array.from({ length: 3 }, () => el("span"));
  const legend = el("p", { class: "scale quiet" }, low, scale, high, note);
  const root = el("div", { class: "explanation" }, sentence, legend);

  function update(model) {
    const { state, heads, panes, against } = model;
    sentence.replaceChildren(...sentenceOf(model).map((part) => (typeof part === "string" ? part : term(...part))));
    const { picture } = panes[0];
    legend.hidden = isAligned(model);
    const several = heads.length > 1 && state.view !== "matrix" && !picture.signed;
    const more = several ? "currentColor" : weightColor(picture, heads.length > 1 ? -1 : heads[0], 1);
    const less = picture.signed ? `${weightColor(picture, -1, -1)}, transparent` : "transparent";
    scale.style.background = `linear-gradient(to right, ${less}, ${more})`;
    const name = state.contribution ? "share of contribution" : "weight";
    low.textContent = picture.signed ? "−1" : `${name} 0`;
    high.textContent = picture.signed ? `+1 ${name}, against ${against.name}` : "1";
    note.textContent = several ? `each head has its colour; opacity: ${name}, divided among ${heads.length} heads where no word is chosen`
      : heads.length > 1 ? `mean of ${heads.length} heads` : "";
  }

  return { root, update };
}

/** What a picture does not say. */
export function caveatOf(state) {
  if (state.contribution) {
    return "A contribution is the weight times the norm of the word's transformed value (Kobayashi et al. 2020), as a share of "
      + "the row: what a head passed on, not why the model chose a word. Measures and roles of heads are those of the weights.";
  }
  return "A weight says what a head read, not why the model chose a word. A word with a large weight may still pass on little: "
    + "Contribution shows the weight times the norm of the transformed value (Kobayashi et al. 2020).";
}
