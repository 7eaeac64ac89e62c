// Two columns of words with lines between them.

import { rgba } from "./colors.js";
import { el, rovingFocus, tokenText } from "./dom.js";

const LARGEST_CANVAS = 16000;
const WIRES_WIDTH = 260;

/** `onWord(word)`: a word was clicked; `onHover(word)`: the mouse or the keyboard is on it, or "". */
export function createColumns({ onWord, onHover }) {
  const base = el("canvas");
  const overlay = el("canvas");
  const wires = el("div", { class: "wires" }, base, overlay);
  const sides = { row: tokenList("Words that ask"), column: tokenList("Words that are read") };
  const names = [el("p", { class: "side-name" }), el("p", { class: "side-name" })];
  const root = el("div", { class: "columns" }, names[0], el("span", { class: "arrow", text: "reads →" }), names[1],
    sides.row, wires, sides.column);
  let view = null;
  let hovered = "";
  let marked = [];

  for (const list of Object.values(sides)) {
    rovingFocus(list, "li");
    const show = (event) => hover(event.target.closest("li")?.dataset.word ?? "");
    list.addEventListener("mouseover", show);
    list.addEventListener("focusin", show);
    list.addEventListener("mouseleave", () => hover(""));
    list.addEventListener("focusout", () => hover(""));
    const choose = (event) => {
      const word = event.target.closest("li")?.dataset.word;
      if (word) onWord(word === view.word ? "" : word);
    };
    list.addEventListener("click", choose);
    list.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(event);
    });
  }

  function hover(word) {
    if (word === hovered || !view) return;
    hovered = word;
    paintWord();
    onHover(word);
  }

  /** `next`: {rows, columns, names (of both sides), word, lines(word), boxes(word)}. */
  function update(next) {
    view = next;
    hovered = "";
    names.forEach((node, i) => { node.textContent = view.names[i]; });
    fillTokens(sides.row, view.rows, "r");
    fillTokens(sides.column, view.columns, "c");
    const pitch = Math.max(view.rows.length, view.columns.length) > 100 ? 17 : 24;
    root.style.setProperty("--pitch", `${pitch}px`);
    view.pitch = pitch;
    paintLines(base, view, view.lines(""));
    paintWord();
  }

  function paintWord() {
    const word = hovered || view.word;
    root.classList.toggle("chosen", word !== "");
    paintLines(overlay, view, word ? view.lines(word) : []);
    for (const node of marked) {
      node.style.background = "";
      node.classList.remove("query");
    }
    marked = [];
    const boxes = word ? view.boxes(word) : [];
    for (const [node, own] of groupBoxes(sides, boxes)) {
      node.style.background = stackedBoxes(own);
      marked.push(node);
    }
    const query = root.querySelector(`li[data-word="${word || "none"}"]`);
    if (query) {
      query.classList.add("query");
      marked.push(query);
    }
    for (const node of root.querySelectorAll("[aria-selected=true]")) node.setAttribute("aria-selected", "false");
    root.querySelector(`li[data-word="${view.word || "none"}"]`)?.setAttribute("aria-selected", "true");
  }

  return { root, update };
}

function tokenList(label) {
  return el("ul", { class: "tokens", role: "listbox", "aria-label": label });
}

/** Words as text only; kept where they stay the same, so that the keyboard's place is kept. */
function fillTokens(list, groups, letter) {
  const key = JSON.stringify(groups.map((group) => [group.text, group.content]));
  if (list.tokenKey === key) return;
  list.tokenKey = key;
  list.replaceChildren(...groups.map((group, i) => el("li", {
    role: "option", dir: "auto", title: group.text, "data-word": letter + i,
    class: group.content ? "" : "function", tabindex: i === 0 ? 0 : -1, "aria-selected": "false",
  }, ...tokenText(group.text))));
}

function groupBoxes(sides, boxes) {
  const groups = new Map();
  for (const box of boxes) {
    const node = sides[box.side].children[box.index];
    groups.set(node, [...(groups.get(node) ?? []), box]);
  }
  return groups;
}

function stackedBoxes(boxes) {
  const stops = [];
  for (const { order, of, color, opacity } of boxes) {
    const [from, to] = [order, order + 1].map((n) => `${(100 * n / of).toFixed(2)}%`);
    stops.push(`transparent ${from}`, `${rgba(color, opacity)} ${from}`, `${rgba(color, opacity)} ${to}`,
      `transparent ${to}`);
  }
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

function paintLines(canvas, view, lines) {
  const height = view.pitch * Math.max(view.rows.length, view.columns.length);
  const scale = Math.min(window.devicePixelRatio || 1, LARGEST_CANVAS / height);
  canvas.width = WIRES_WIDTH * scale;
  canvas.height = height * scale;
  canvas.style.width = `${WIRES_WIDTH}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  for (const line of lines) {
    context.strokeStyle = line.color;
    context.globalAlpha = line.opacity;
    context.lineWidth = line.width;
    context.beginPath();
    context.moveTo(0, (line.row + 0.5) * view.pitch);
    context.lineTo(WIRES_WIDTH, (line.column + 0.5) * view.pitch);
    context.stroke();
  }
}
