// All heads of a kind as thumbnails; a click opens one.

import { headColor, paintMap } from "./colors.js";
import { el, fillSelect, rovingFocus, selectField, tabStop } from "./dom.js";
import { LABEL_ROWS, MEASURES, ROLES, alignmentText, alignsWell, kindName, measureText, measuresKnown, measuresOf, noStarText, orderHeads } from "./measures.js";
import { poolMap } from "./weights.js";

/** `onOpen(layer, head, add)`: a thumbnail was chosen, `add`ed to the others with the shift key. */
export function createGrid({ onOpen, set }) {
  const sort = selectField("Order", (value) => set({ sort: value, limit: "" }));
  const label = selectField("Role", (value) => set({ label: value }));
  const limit = el("input", { type: "number", step: 0.05, onchange: () => set({ limit: limit.value }) });
  const heading = el("h2");
  const cells = el("div", { class: "thumbs", role: "group", "aria-label": "All heads" });
  const note = el("p", { class: "quiet", hidden: true });
  const root = el("section", { class: "panel grid" },
    el("header", {}, heading, sort.root, limit, label.root), cells, note);
  rovingFocus(cells, "button", () => Number(cells.dataset.columns) || 1);

  cells.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) onOpen(Number(button.dataset.layer), Number(button.dataset.head), event.shiftKey);
  });

  /** The words and numbers: at once. */
  function update(model) {
    const { kind, header } = model;
    const known = measuresKnown(header, kind);
    const state = { ...model.state, sort: known.includes(model.state.sort) ? model.state.sort : "" };
    heading.textContent = `${kindName(kind.name)} heads`;
    fillSelect(sort.select, [["", "by layer"], ...known.map((key) => [key, `by ${MEASURES[key][0]}`])],
      state.sort);
    showLimit(limit, state);
    fillSelect(label.select, [["", "any"], ...ROLES.map((role) => [role, role])], state.label);
    const order = orderHeads(header, kind, state);
    const rows = measuresOf(header, kind.name, 0, 0).rows ?? 0;
    note.textContent = [rows && rows < LABEL_ROWS
      ? `${rows} ${rows === 1 ? "row was" : "rows were"} measured: too few to say what a head does (${LABEL_ROWS} are needed).`
      : order.length ? "" : state.label ? `No head has the role “${state.label}” at this step.` : "No head matches.",
    kind.name === "cross" ? noStarText(header) : ""].filter(Boolean).join(" ");
    note.hidden = !note.textContent;
    placeCells(cells, order, !state.sort && !state.label ? kind.heads : 0);
    order.forEach((one, i) => describeCell(cells.children[i], one, { ...model, state }));
  }

  /** The pictures, one a layer: when they have been read. */
  let painted = [];
  function paint(pictures) {
    painted = pictures;
    for (const button of cells.children) {
      const picture = pictures[button.dataset.layer];
      const head = Number(button.dataset.head);
      if (!picture?.maps[head]) continue;
      const canvas = button.querySelector("canvas");
      // The screen's own pixels: the browser would leave out the columns of a larger picture.
      const size = Math.max(1, Math.floor(canvas.clientWidth * (window.devicePixelRatio || 1)));
      const small = poolMap(picture.maps[head], picture.rows.length, picture.columns.length, size);
      paintMap(canvas, small.map, small.rows, small.columns, picture, head);
    }
  }
  new ResizeObserver(() => paint(painted)).observe(cells);

  return { root, update, paint };
}

/** How good a head must be to be shown; without an order by a measure there is no such number. */
function showLimit(input, { sort, limit }) {
  input.hidden = !sort;
  if (!sort) return;
  const words = MEASURES[sort][2] ? "at least" : "at most";
  input.placeholder = words;
  input.setAttribute("aria-label", `${MEASURES[sort][0]} ${words}`);
  input.value = limit;
}

/** As many thumbnails as heads; by layer in a table of layers and heads (`columns` > 0), else in a row. */
function placeCells(cells, order, columns) {
  cells.dataset.columns = columns;
  cells.style.setProperty("--heads", columns || "auto-fill");
  cells.classList.toggle("sorted", columns === 0);
  while (cells.children.length > order.length) cells.lastChild.remove();
  while (cells.children.length < order.length) {
    cells.append(el("button", { type: "button" }, el("span", { class: "frame" }, el("canvas")),
      el("span", { class: "caption" })));
  }
  tabStop([...cells.children], cells.firstChild);
}

function describeCell(button, { layer, head, measures }, model) {
  const { state, kind } = model;
  const open = layer === model.layer && model.heads.includes(head) && model.heads.length < kind.heads;
  Object.assign(button.dataset, { layer, head });
  button.style.setProperty("--head", headColor(head));
  button.setAttribute("aria-pressed", String(open));
  const number = typeof measures[state.sort] === "number" ? measureText(measures[state.sort]) : "";
  const roles = measures.labels ?? [];
  const name = `layer ${layer + 1} head ${head + 1}`;
  const place = `${layer + 1}.${head + 1}`;
  const best = alignsWell(measures);
  // What is seen comes first: a user may say it to the computer.
  const seen = [place, best ? "★" : "", number, roles.join(", ")].filter(Boolean).join(" ");
  const words = [seen, name, best ? `best alignment, ${alignmentText(measures)}` : "", number && `${MEASURES[state.sort][0]} ${number}`]
    .filter(Boolean).join(", ");
  button.setAttribute("aria-label", words);
  button.title = words;
  button.dataset.label = words;
  button.classList.toggle("best", best);
  const caption = button.lastChild;
  caption.replaceChildren(
    el("span", { class: "place", text: place }), " ",
    ...(best ? [el("span", { class: "star", text: "★" }), " "] : []),
    ...(number ? [el("span", { class: "number", text: number }), " "] : []),
    el("span", { class: "role", text: roles.join(", ") }),
  );
}
