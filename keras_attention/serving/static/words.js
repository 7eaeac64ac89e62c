// Words of the source that are masked, and why the model chose one word and not another.

import { el, toggleButton, tokenText } from "../viewer/dom.js";
import { groupTokens, tokenLists } from "../viewer/weights.js";

/** The number of a token, or of a word's tokens, on the way to the server, which counts from 1. */
function numbers(members) {
  return members.map((i) => i + 1).join(".");
}

/** `text`: what is masked at first; `onChange()`: others are now. */
export function createMasks({ text = "", onChange }) {
  let masked = new Set(text.split(/[ .]/).filter(Boolean).map((number) => Number(number) - 1));
  let model = null; // what the viewer shows
  let root = null; // where its words are
  const button = toggleButton("Mask", "The model translates as if the chosen word of the source were not there; a double click does the same",
    () => toggle(model.state.word));
  const list = el("div", { class: "off-heads", role: "group", "aria-label": "Masked words", hidden: true });

  /** The tokens of a word of the picture, if it is one of the source. */
  function membersOf(word) {
    const { header, kind, state, panes } = model;
    const side = word.startsWith("r") ? "rows" : "columns";
    if (kind[side] !== "source") return [];
    const picture = panes[0].picture;
    const groups = state.view === "alignment" ? groupTokens(tokenLists(header, kind, state.read)[side], true) : picture[side];
    const group = groups[Number(word.slice(1))];
    return group && !group.special ? group.members : [];
  }

  function toggle(word) {
    const members = membersOf(word);
    if (!members.length) return;
    const isMasked = members.every((i) => masked.has(i));
    getSelection().removeAllRanges(); // which a double click made
    change([...masked].filter((i) => !members.includes(i)).concat(isMasked ? [] : members));
  }

  function change(next) {
    masked = new Set(next);
    show();
    onChange();
  }

  function show() {
    if (!model) return;
    for (const item of root.querySelectorAll(".panes li[data-word]")) {
      const members = membersOf(item.dataset.word);
      item.classList.toggle("masked", members.length > 0 && members.every((i) => masked.has(i)));
    }
    const members = membersOf(model.state.word);
    button.disabled = !members.length;
    button.setAttribute("aria-pressed", String(members.length > 0 && members.every((i) => masked.has(i))));
    const words = groupTokens(model.header.tokens.source, true).filter((group) => group.members.some((i) => masked.has(i)));
    list.hidden = !words.length;
    list.replaceChildren("Masked: ", ...words.map((group) => el("button", { type: "button", "aria-label": `Unmask ${group.text}`,
      title: "Unmask", onclick: () => change([...masked].filter((i) => !group.members.includes(i))) }, el("bdi", { text: group.text }), " ×")));
  }

  return {
    button,
    list,
    /** For the server. */
    text: () => [...masked].sort((a, b) => a - b).map((i) => i + 1).join(" "),
    /** Another text has other words. */
    clear: () => { masked = new Set(); },
    /** The viewer shows something else, in `place`. */
    update(next, place) {
      model = next;
      if (!root) place.addEventListener("dblclick", (event) => toggle(event.target.closest(".panes li")?.dataset.word ?? ""));
      root = place;
      show();
    },
  };
}

/**
 * Why the model chose a token and not its runner-up, as an element.
 * `asks(contrast)`: the server's answer; `at`, `rank`: the token's place and the runner-up's rank.
 */
export async function explainChoice(asks, { header, state }, at, rank) {
  const words = groupTokens(header.tokens.source, state.words).filter((group) => !group.special);
  const { contrast } = await asks([`${at + 1}.${rank + 1}`, ...words.map((group) => numbers(group.members))].join(" "));
  const most = Math.max(...contrast.lost.map(Math.abs), 1e-9);
  const line = (group, lost) => el("tr", { class: lost < 0 ? "against" : "" }, el("th", { scope: "row", dir: "auto" }, ...tokenText(group.text)),
    el("td", { class: "number", style: `--p: ${(Math.abs(lost) / most).toFixed(3)}`, text: signed(lost) }));
  const [own, [other]] = [header.tokens.decoder_output[at].text, header.predictions[at].others[rank]];
  return el("table", {},
    el("caption", { title: "Contrastive input erasure, Yin and Neubig 2022" }, "Why ", el("q", { dir: "auto", text: own }), ", not ", el("q", { dir: "auto", text: other }),
      `? The difference of their log-probabilities is ${signed(contrast.whole)}. With a word of the source masked, it loses:`),
    el("tbody", {}, ...words.map((group, i) => line(group, contrast.lost[i]))));
}

function signed(number) {
  return `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;
}
