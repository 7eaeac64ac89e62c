// The menus above the pictures.

import { el, fillSelect, segments, selectField, toggleButton } from "./dom.js";
import { kindName } from "./measures.js";
import { runTitle, sameSentence, stemOf } from "./model.js";

/** Run, sentence, and reference or output. `set(patch)` changes the state. */
export function createPlaceMenu({ set }) {
  let shown = null;
  const run = selectField("Run", (value) => {
    const same = sameSentence(shown.index.runs.find((one) => one.name === value), shown.place.sentence);
    set({ run: value, tag: (same ?? shown.place.sentence).tag });
  });
  const sentence = selectField("Sentence", (value) => set({ tag: value }));
  sentence.root.classList.add("wide");
  const target = segments("Translation", (value) => set({ tag: value }));
  const root = el("div", { class: "bar" }, run.root, sentence.root, target.root);

  function update({ index, place }) {
    shown = { index, place };
    fillSelect(run.select, index.runs.filter((one) => one.sentences.length).map((one) => [one.name, runTitle(one)]),
      place.run.name);
    run.root.hidden = run.select.length < 2;
    const all = place.run.sentences;
    const versions = all.filter((one) => stemOf(one.tag) === stemOf(place.sentence.tag));
    const first = all.filter((one, i) => all.findIndex((other) => stemOf(other.tag) === stemOf(one.tag)) === i);
    // A sentence in the menu leads to the same version, reference or output, if it has it.
    const options = first.map((one, i) => {
      const same = all.find((other) => stemOf(other.tag) === stemOf(one.tag) && other.target === place.sentence.target);
      return [(same ?? one).tag, `${i + 1}. \u2068${one.text}\u2069`];
    });
    fillSelect(sentence.select, options, place.sentence.tag);
    target.root.hidden = versions.length < 2;
    target.update(versions.map((one) => [one.tag, one.target === "output" ? "Beam output" : "Reference"]),
      place.sentence.tag);
  }

  return { root, update };
}

/** Kind and heads. */
export function createKindMenu({ set }) {
  let view = "";
  const kinds = segments("Kind of attention", (kind) => set({ kind, layer: -1, heads: [], word: "",
    ...(view === "alignment" && kind !== "cross" ? { view: "lines" } : {}) }));
  const note = el("span", { class: "quiet" });
  return {
    root: el("div", { class: "bar" }, kinds.root, note),
    update({ header, kind, state }) {
      view = state.view;
      const missing = !header.kinds.some((one) => one.name === "decoder");
      note.textContent = missing ? "Of the decoder's own attention there is no record. A decoder of recurrent cells has none." : "";
      kinds.update(header.kinds.map((one) => [one.name, kindName(one.name)]), kind.name);
    },
  };
}

/** How the picture is drawn. */
export function createViewMenu({ set, onView }) {
  const view = segments("View", onView);
  const words = toggleButton("Whole words", "Merge the pieces of a word: sum over pieces that are read, mean over pieces that read (W)",
    (on) => set({ words: on }));
  const content = toggleButton("Content words only",
    "Leave out special tokens and punctuation, and divide each row by its sum (C)", (on) => set({ content: on }));
  const measure = segments("Shown", (value) => set({ contribution: value === "contribution" }));
  const row = segments("A row is the word", (value) => set({ read: value === "read" }));
  const rowField = el("div", { class: "field" }, el("span", { text: "A row is the word" }), row.root);
  const whole = toggleButton("Whole matrix", "Make the matrix as small as the room for it", (on) => set({ whole: on }));
  const root = el("div", { class: "bar" }, view.root, measure.root, words, content, whole);

  function update({ state, kind, header, known }) {
    measure.update([["weight", "Weight"], ["contribution", "Contribution"]], state.contribution ? "contribution" : "weight");
    measure.root.hidden = !known;
    view.update([["lines", "Lines"], ["matrix", "Matrix"],
      ...(header.kinds.some((one) => one.name === "cross") ? [["alignment", "Alignment"]] : [])], state.view);
    words.setAttribute("aria-pressed", String(state.words));
    content.setAttribute("aria-pressed", String(state.content));
    words.disabled = content.disabled = state.view === "alignment";
    whole.hidden = state.view !== "matrix";
    whole.setAttribute("aria-pressed", String(state.whole));
    rowField.hidden = kind.rows !== "decoder";
    row.update([["predicted", "predicted"], ["read", "read"]], state.read ? "read" : "predicted");
  }

  return { root, row: rowField, update };
}

/** What the picture is compared with. */
export function createCompareMenu({ set, onSwap }) {
  let model = null;
  const what = selectField("Compare with", (value) => set({ compare: value, against: firstOther(model, value) }));
  const other = el("select", { "aria-label": "The other", onchange: () => set({ against: other.value }) });
  const swap = el("button", { type: "button", text: "⇄", title: "Swap the two", "aria-label": "Swap the two",
    onclick: onSwap });
  const beside = toggleButton("Side by side", "Show both beside each other, in place of their difference", (on) => set({ beside: on }));
  const root = el("div", { class: "bar compare" }, what.root, other, swap, beside);

  function update(next) {
    model = next;
    const { state, against } = model;
    const runs = model.index.runs.filter((one) => one.sentences.length);
    const options = [["", "nothing"], ["step", "another step"], ["head", "another head"], ["run", "another run"]];
    fillSelect(what.select, options.filter(([key]) => (key !== "run" || runs.length > 1)
      && (key !== "step" || model.place.steps.length > 1)), against ? state.compare : "");
    other.hidden = swap.hidden = beside.hidden = !against;
    beside.setAttribute("aria-pressed", String(state.beside));
    if (!against) return;
    const value = state.compare === "step" ? String(against.place.step) : state.against;
    fillSelect(other, othersOf(model, state.compare), value);
  }

  return { root, update };
}

/** What a kind of comparison can be with: [value, text] pairs. */
function othersOf({ index, place, kind }, compare) {
  if (compare === "step") return place.steps.map((step) => [String(step), `step ${step}`]);
  if (compare === "run") return index.runs.filter((one) => one.sentences.length).map((one) => [one.name, runTitle(one)]);
  return Array.from({ length: kind.layers * kind.heads }, (_, i) => {
    const [layer, head] = [Math.floor(i / kind.heads) + 1, i % kind.heads + 1];
    return [`${layer}.${head}`, `layer ${layer} head ${head}`];
  });
}

/** What a new comparison starts with: the step before, the run or head beside. */
function firstOther(model, compare) {
  if (!compare) return "";
  const { place, layer, heads, kind } = model;
  if (compare === "step") {
    const at = place.steps.indexOf(place.step);
    return String(place.steps[at > 0 ? at - 1 : at + 1]);
  }
  if (compare === "head") return `${layer + 1}.${(heads[0] + 1) % kind.heads + 1}`;
  return othersOf(model, "run").find(([name]) => name !== place.run.name)[0];
}

/** The state with both sides exchanged. */
export function swappedState({ state, place, against, layer, heads }) {
  if (state.compare === "step") return { step: against.place.step, against: String(place.step) };
  if (state.compare === "run") return { run: against.place.run.name, against: place.run.name };
  return { layer: against.layer, heads: [against.head], against: `${layer + 1}.${heads[0] + 1}` };
}
