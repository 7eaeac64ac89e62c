// All heads of a kind as points: two measures, one across, one up.

import { headColor } from "./colors.js";
import { el, fillSelect, rovingFocus, selectField } from "./dom.js";
import { MEASURES, allHeads, measureText, measuresKnown, measuresOf } from "./measures.js";

const FIRST_PAIR = ["entropy", "distance"];

/** The points of heads that have both measures: [{layer, head, x, y}] with x and y from 0 to 1, and the ranges. */
export function scatterOf(header, kind, [across, up]) {
  const points = allHeads(kind).map((one) => ({ ...one, measures: measuresOf(header, kind.name, one.layer, one.head) }))
    .filter(({ measures }) => [across, up].every((key) => typeof measures[key] === "number"));
  const ranges = [across, up].map((key) => {
    const values = points.map(({ measures }) => measures[key]);
    return [Math.min(...values), Math.max(...values)];
  });
  const share = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);
  return { ranges, points: points.map((one) => (
    { ...one, x: share(one.measures[across], ranges[0]), y: share(one.measures[up], ranges[1]) })) };
}

/** `onOpen(layer, head, add)`: a head was chosen. The panel is open while the state has two measures. */
export function createScatter({ onOpen, set }) {
  let pair = FIRST_PAIR;
  let model = null;
  const choose = (at) => (value) => set({ scatter: pair.map((key, i) => (i === at ? value : key)).join(",") });
  const fields = [selectField("Across", choose(0)), selectField("Up", choose(1))];
  const ends = ["top", "bottom", "left", "right"].map((side) => el("span", { class: `end ${side}` }));
  const dots = el("div", { class: "dots", role: "group", "aria-label": "Heads by two measures" });
  const plot = el("div", { class: "plot" }, ...ends, dots);
  const none = el("p", { class: "quiet", text: "No head has both measures." });
  const root = el("details", { class: "panel scatter" }, el("summary", { text: "Heads over two measures" }),
    el("div", { class: "bar" }, ...fields.map((one) => one.root)), plot, none);
  rovingFocus(dots, "button");
  root.addEventListener("toggle", () => {
    if (model && root.open !== (model.state.scatter !== "")) set({ scatter: root.open ? pair.join(",") : "" });
  });
  dots.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) onOpen(Number(button.dataset.layer), Number(button.dataset.head), event.shiftKey);
  });

  function update(next) {
    model = next;
    const { header, kind, state } = model;
    const known = measuresKnown(header, kind);
    root.hidden = known.length < 2;
    const wanted = state.scatter.split(",");
    pair = [0, 1].map((at) => [wanted[at], FIRST_PAIR[at], known[at]].find((key) => known.includes(key)));
    root.open = state.scatter !== "";
    if (!root.open || root.hidden) return;
    fields.forEach((field, at) => fillSelect(field.select, known.map((key) => [key, MEASURES[key][0]]), pair[at]));
    const { points, ranges } = scatterOf(header, kind, pair);
    none.hidden = points.length > 0;
    plot.hidden = !points.length;
    const texts = [...[...ranges[1]].reverse().map((value) => `${MEASURES[pair[1]][0]} ${measureText(value)}`),
      ...ranges[0].map((value) => `${MEASURES[pair[0]][0]} ${measureText(value)}`)];
    if (points.length) ends.forEach((end, i) => { end.textContent = texts[i]; });
    const focused = dots.querySelector(":focus")?.dataset.place;
    dots.replaceChildren(...points.map((point, i) => dotOf(point, i, model, pair)));
    dots.querySelector(`[data-place="${focused}"]`)?.focus();
  }

  return { root, update };
}

function dotOf({ layer, head, x, y, measures }, i, { kind, layer: shownLayer, heads }, pair) {
  const name = `layer ${layer + 1} head ${head + 1}: ${pair.map((key) => `${MEASURES[key][0]} ${measureText(measures[key])}`).join(", ")}`;
  const isOpen = layer === shownLayer && heads.includes(head) && heads.length < kind.heads;
  return el("button", { type: "button", "data-layer": layer, "data-head": head, "data-place": `${layer + 1}.${head + 1}`,
    "aria-label": name, "data-explain": name, "aria-pressed": String(isOpen), tabindex: i ? -1 : 0,
    style: `--head: ${headColor(head)}; left: ${(100 * x).toFixed(2)}%; bottom: ${(100 * y).toFixed(2)}%` });
}
