// The heads of a layer as coloured squares, and the layer.

import { headColor, inkOn } from "./colors.js";
import { el, fillSelect, rovingFocus, selectField, tabStop } from "./dom.js";

export function createHeadMenu({ set }) {
  let model = null;
  const layer = selectField("Layer", (value) => set({ layer: Number(value), heads: model.heads }));
  // Not that of the picture: a layer that was just chosen may still be loading.
  const chosen = () => Number(layer.select.value);
  const squares = el("div", { class: "squares", role: "group", "aria-label": "Heads" });
  const all = el("button", { type: "button", class: "toggle", text: "All heads", title: "All heads of the layer (A)",
    onclick: () => set({ layer: chosen(), heads: allOf(model) }) });
  const root = el("div", { class: "bar" }, layer.root, squares, all);

  rovingFocus(squares, "button");
  squares.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = Number(button.dataset.head);
    set({ layer: chosen(), heads: event.shiftKey || event.ctrlKey ? toggledHeads(model.heads, head) : [head] });
  });

  function update(next) {
    model = next;
    const { kind, heads } = model;
    const layers = Array.from({ length: kind.layers }, (_, i) => [String(i), String(i + 1)]);
    fillSelect(layer.select, layers, String(model.layer));
    while (squares.children.length > kind.heads) squares.lastChild.remove();
    while (squares.children.length < kind.heads) {
      const head = squares.children.length;
      squares.append(el("button", { type: "button", "data-head": head, text: String(head + 1),
        style: `--head: ${headColor(head)}; --on-head: ${inkOn(headColor(head))}`, "aria-label": `Head ${head + 1}`,
        title: `Head ${head + 1}; with the shift key: besides the others` }));
    }
    [...squares.children].forEach((button, head) =>
      button.setAttribute("aria-pressed", String(heads.includes(head))));
    tabStop([...squares.children], squares.children[heads[0]]);
    all.setAttribute("aria-pressed", String(heads.length === kind.heads));
  }

  return { root, update };
}

function allOf({ kind }) {
  return Array.from({ length: kind.heads }, (_, head) => head);
}

/** A head more, or one less; the last one stays. */
export function toggledHeads(heads, head) {
  const rest = heads.includes(head) ? heads.filter((one) => one !== head) : [...heads, head];
  return rest.length ? rest.sort((a, b) => a - b) : heads;
}
