// Two columns of words with lines between them.

import { el, tokenText, wordChoice } from "./dom.js";

const LARGEST_CANVAS = 16000;

/** `onWord(word)`: a word was clicked; `onHover(word)`: the mouse or the keyboard is on it, or "". */
export function createColumns({ onWord, onHover }) {
  const base = el("canvas");
  const overlay = el("canvas");
  const wires = el("div", { class: "wires" }, base, overlay);
  const sides = { row: tokenList("Words that read"), column: tokenList("Words that are read") };
  const behind = { row: el("canvas", { class: "boxes" }), column: el("canvas", { class: "boxes" }) };
  const names = [el("p", { class: "side-name" }), el("p", { class: "side-name" })];
  const root = el("div", { class: "columns" }, names[0], el("span", { class: "arrow", text: "reads →" }), names[1],
    el("div", { class: "word-side asks" }, behind.row, sides.row), wires,
    el("div", { class: "word-side" }, behind.column, sides.column));
  let view = null;
  let hovered = "";
  const marked = { query: null, chosen: null };

  for (const list of Object.values(sides)) {
    const show = (event) => hover(event.target.closest("li")?.dataset.word ?? "");
    list.addEventListener("mouseover", show);
    list.addEventListener("focusin", show);
    list.addEventListener("mouseleave", () => hover(""));
    list.addEventListener("focusout", () => hover(""));
    wordChoice(list, (word) => onWord(word === view.word ? "" : word));
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
    view.width = wires.clientWidth; // read once: it lays out the page
    paintLines(base, view, view.lines(""));
    paintWord();
  }

  function paintWord() {
    const word = hovered || view.word;
    root.classList.toggle("chosen", word !== "");
    paintLines(overlay, view, word ? view.lines(word) : []);
    const boxes = word ? view.boxes(word) : [];
    for (const side of ["row", "column"]) {
      paintBoxes(behind[side], sides[side], view.pitch, boxes.filter((box) => box.side === side));
    }
    marked.query?.classList.remove("query");
    marked.query = itemOf(word);
    marked.query?.classList.add("query");
    marked.chosen?.setAttribute("aria-selected", "false");
    marked.chosen = itemOf(view.word);
    marked.chosen?.setAttribute("aria-selected", "true");
  }

  function itemOf(word) {
    const list = word.startsWith("r") ? sides.row : sides.column;
    return word ? list.children[Number(word.slice(1))] : null;
  }

  /** Shows a word as if the mouse were on it. */
  function point(word) {
    hovered = word;
    paintWord();
  }

  return { root, update, point };
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

/** Boxes behind the words of one side: a word's box, divided among the heads. */
function paintBoxes(canvas, list, pitch, boxes) {
  const width = boxes.length ? list.clientWidth : 0;
  const context = sizedContext(canvas, width, pitch * list.children.length);
  for (const { index, order, of, color, opacity } of boxes) {
    context.fillStyle = color;
    context.globalAlpha = opacity;
    context.fillRect(order * width / of, index * pitch + 1, width / of, pitch - 2);
  }
}

function paintLines(canvas, view, lines) {
  const height = view.pitch * Math.max(view.rows.length, view.columns.length);
  const context = sizedContext(canvas, view.width, height);
  for (const line of lines) {
    context.strokeStyle = line.color;
    context.globalAlpha = line.opacity;
    context.lineWidth = line.width;
    context.beginPath();
    // Heads stand beside one another, or their colours would mix.
    const shift = (line.order - (line.of - 1) / 2) * Math.min(2, view.pitch / 2 / line.of) || 0;
    context.moveTo(0, (line.row + 0.5) * view.pitch + shift);
    context.lineTo(view.width, (line.column + 0.5) * view.pitch + shift);
    context.stroke();
  }
}

/** An empty canvas of this size in CSS pixels, with the screen's own pixels where they are not too many. */
function sizedContext(canvas, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, LARGEST_CANVAS / height);
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}
