// The pictures side by side: lines or matrices, as many as are needed.

import { createColumns } from "./columns.js";
import { el } from "./dom.js";
import { createMatrix } from "./matrix.js";

/** `onWord(word)`: one was clicked; `onHover(word, text)`: the mouse is on one, or on none (""). */
export function createPanes({ onWord, onHover }) {
  const root = el("div", { class: "panes" });
  let shown = null;
  let linked = false;

  /** Panes of a kind, kept where they are of it. `areLinked`: a word that is pointed at is shown in all of them. */
  function views(kind, count, areLinked = false) {
    linked = areLinked;
    if (shown?.kind === kind && shown.all.length === count) return shown.all;
    const make = kind === "matrix" ? createMatrix : createColumns;
    const all = Array.from({ length: count }, () => {
      const title = el("h3", {});
      const view = make({ onWord, onHover: (word, text) => {
        onHover(word, text);
        if (linked) all.forEach((other) => other.view !== view && other.view.point(word));
      } });
      return { title, view, root: el("div", { class: "pane" }, title, view.root) };
    });
    root.replaceChildren(...all.map((one) => one.root));
    shown = { kind, all };
    return all;
  }

  return { root, views };
}
