// Finds words and leaves out what is too much: a search, a window on a long text, a threshold for lines.

import { el, fillSelect, selectField } from "./dom.js";
import { isAligned } from "./state.js";
import { groupTokens, shownGroups, tokenLists } from "./weights.js";
import { placeInWindow, windowBounds, windowCount } from "./windows.js";

const LARGEST_THRESHOLD = 0.5;

/** The words whose text has the letters that are searched: [{side, index}], the words that read first. */
export function foundWords({ rows, columns }, letters) {
  const wanted = letters.trim().toLocaleLowerCase();
  if (!wanted) return [];
  const found = (side, groups) => groups.flatMap((group, index) => (
    group.text.toLocaleLowerCase().includes(wanted) ? [{ side, index }] : []));
  return [...found("row", rows), ...found("column", columns)];
}

/** `onFound(patch, word)`: a word was found; the patch shows it. */
export function createSieve({ set, onFound }) {
  let model = null;
  let whole = { rows: [], columns: [] }; // all words, also those outside of the window
  let at = -1;
  const input = el("input", { type: "search", "aria-label": "Find a word", placeholder: "Find a word  /", title: "Find a word (/); Enter: the next one" });
  const count = el("span", { class: "quiet number", role: "status" });
  const part = selectField("Window", (value) => set({ window: Number(value) }));
  const lost = el("span", { class: "quiet" });
  const least = el("input", { type: "range", min: 0, max: LARGEST_THRESHOLD, step: 0.01, "aria-label": "Faintest line" });
  const value = el("output", { class: "number" });
  const threshold = el("label", { class: "field threshold", title: "Lines below this weight are not drawn" },
    el("span", { text: "Lines from" }), least, value);
  const root = el("div", { class: "bar sieve" }, el("label", { class: "field" }, input, count), threshold, part.root, lost);

  least.addEventListener("input", () => set({ least: Number(least.value) }, false));
  input.addEventListener("input", () => find(0));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.value = "";
      find(0);
      input.blur();
    } else if (event.key === "Enter") {
      event.preventDefault();
      find(at + (event.shiftKey ? -1 : 1));
    }
  });

  function find(place) {
    const found = foundWords(whole, input.value);
    at = found.length ? (place + found.length) % found.length : -1;
    count.textContent = !input.value.trim() ? "" : found.length ? `${at + 1} of ${found.length}` : "not found";
    if (at < 0) return;
    const { side, index } = found[at];
    const inside = isAligned(model) ? { index } : placeInWindow(whole, side, index, model.state.window);
    const word = side[0] + inside.index;
    onFound({ word, ...("window" in inside ? { window: inside.window } : {}) }, word);
  }

  function update(next) {
    model = next;
    const { header, kind, state, picture, heads } = model;
    const lists = tokenLists(header, kind, state.read);
    whole = isAligned(model) ? { rows: groupTokens(lists.rows, true), columns: groupTokens(lists.columns, true) }
      : shownGroups(lists, state);
    const windows = isAligned(model) ? 0 : windowCount(whole);
    part.root.hidden = !windows;
    const side = whole.rows.length >= whole.columns.length ? "row" : "column";
    const name = (number) => windowBounds(whole, number)[side];
    fillSelect(part.select, [["0", "the whole text"], ...Array.from({ length: windows }, (_, i) => (
      [String(i + 1), `words ${name(i + 1)[0] + 1} to ${name(i + 1)[1]}`]))], String(Math.min(state.window, windows)));
    const shares = heads.flatMap((head) => picture.kept?.[head] ?? []);
    lost.hidden = !windows || !shares.length;
    if (shares.length) {
      const share = 1 - shares.reduce((sum, one) => sum + one, 0) / shares.length;
      lost.textContent = `${Math.round(100 * share)} % of what these words read lies outside`;
    }
    threshold.hidden = state.view !== "lines";
    least.value = state.least;
    value.textContent = state.least.toFixed(2);
    least.setAttribute("aria-valuetext", `weight ${state.least.toFixed(2)}`);
  }

  return { root, update, focus: () => { input.closest("details").open = true; input.focus(); } };
}
