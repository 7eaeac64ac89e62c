// One map as a matrix: words at its edges, a cell a weight, values where they fit.

import { inkOn, paintMap, weightColor } from "./colors.js";
import { el, tokenText, wordChoice } from "./dom.js";
import { poolMap, weightText } from "./weights.js";

const SMALLEST_CELL = 12;
const SMALLEST_WORD = 8; // a cell that is smaller has no word beside it
const LARGEST_CELL = 44;
const CELL_WITH_VALUE = 26;
const MOST_VALUES = 1600;
const LABELS = 150; // pixels of the words at an edge, at most

/** `onWord(word)`: a row's or column's word was clicked; `onHover(word, parts)`: the mouse is on a cell, about which they say. */
export function createMatrix({ onWord, onHover }) {
  const canvas = el("canvas", { class: "cells" });
  const values = el("div", { class: "values", "aria-hidden": "true" });
  const cross = [el("div", { class: "cross" }), el("div", { class: "cross" })];
  const body = el("div", { class: "matrix-body" }, canvas, values, ...cross);
  const rows = el("ul", { class: "tokens matrix-rows", role: "listbox", "aria-label": "Words that read" });
  const columns = el("ul", { class: "tokens matrix-columns", role: "listbox", "aria-label": "Words that are read" });
  const corner = el("div", { class: "corner side-name" });
  const root = el("div", { class: "matrix" }, corner, columns, rows, body);
  let view = null;

  for (const list of [rows, columns]) {
    wordChoice(list, (word) => onWord(word === view.word ? "" : word));
    list.addEventListener("focusin", (event) => onHover(event.target.dataset.word ?? "", ""));
    list.addEventListener("focusout", () => onHover("", ""));
  }
  const cellAt = (event) => {
    const box = body.getBoundingClientRect();
    const limit = (n, count) => Math.min(count - 1, Math.max(0, Math.floor(n / view.cell)));
    return [limit(event.clientY - box.top, view.rows.length), limit(event.clientX - box.left, view.columns.length)];
  };
  body.addEventListener("mousemove", (event) => {
    const [row, column] = cellAt(event);
    const weight = view.map[row * view.columns.length + column];
    onHover(`r${row}`, cellText(view, row, column, weight));
    placeCross(row, column);
  });
  body.addEventListener("mouseleave", () => {
    onHover("", "");
    placeCross(-1, -1);
  });
  body.addEventListener("click", (event) => {
    const word = `r${cellAt(event)[0]}`;
    onWord(word === view.word ? "" : word);
  });

  function placeCross(row, column) {
    const { cell } = view;
    cross[0].hidden = row < 0;
    cross[1].hidden = column < 0;
    Object.assign(cross[0].style, { top: `${row * cell}px`, left: "0", width: "100%", height: `${cell}px` });
    Object.assign(cross[1].style, { left: `${column * cell}px`, top: "0", height: "100%", width: `${cell}px` });
  }

  /** `next`: {picture, names (of both sides), map, head (-1: a mean), word, width (pixels there are)}. */
  function update(next) {
    const { picture } = next;
    const fit = Math.floor((next.width - LABELS) / picture.columns.length);
    const cell = next.whole ? wholeCell(picture, next.width) : Math.min(LARGEST_CELL, Math.max(SMALLEST_CELL, fit));
    view = { ...next, rows: picture.rows, columns: picture.columns, cell };
    root.classList.toggle("wordless", cell < SMALLEST_WORD);
    corner.textContent = `${next.names[0]} ↓ reads ${next.names[1]} →`;
    root.style.setProperty("--cell", `${cell}px`);
    const size = { width: `${cell * view.columns.length}px`, height: `${cell * view.rows.length}px` };
    Object.assign(canvas.style, size);
    Object.assign(body.style, size);
    // Not more pixels than the screen has there: it would leave out some.
    const pixels = Math.floor(cell * Math.max(view.rows.length, view.columns.length) * (window.devicePixelRatio || 1));
    const small = poolMap(view.map, view.rows.length, view.columns.length, Math.max(1, pixels));
    paintMap(canvas, small.map, small.rows, small.columns, picture, view.head);
    fillLabels(rows, view.rows, "r", view.word);
    fillLabels(columns, view.columns, "c", view.word);
    fillValues(values, view);
    point("");
  }

  /** Shows a word's row or column as if the mouse were on it; "" shows the chosen one. */
  function point(word) {
    const chosen = /^([rc])(\d+)$/.exec(word || view.word);
    const index = chosen ? Number(chosen[2]) : -1;
    placeCross(chosen?.[1] === "r" ? index : -1, chosen?.[1] === "c" ? index : -1);
  }

  return { root, update, point };
}

/** The size of a cell at which the whole matrix is seen. */
function wholeCell(picture, width) {
  const height = window.innerHeight * 0.8;
  const most = Math.max(picture.rows.length, picture.columns.length);
  const withWords = Math.min((width - LABELS) / picture.columns.length, (height - LABELS) / picture.rows.length);
  if (withWords >= SMALLEST_WORD) return Math.min(LARGEST_CELL, Math.floor(withWords));
  return Math.min(SMALLEST_WORD - 0.1, width / picture.columns.length, height / picture.rows.length, 4000 / most);
}

function cellText({ rows, columns, picture }, row, column, weight) {
  const name = ({ text }) => el("bdi", { text }); // else a word from right to left takes the number along
  return [name(rows[row]), " → ", name(columns[column]), `: ${weightText(weight, picture.signed)}`];
}

function fillLabels(list, groups, letter, word) {
  const key = JSON.stringify(groups.map((group) => [group.text, group.content]));
  if (list.tokenKey !== key) {
    list.tokenKey = key;
    list.replaceChildren(...groups.map((group, i) => el("li", {
      role: "option", title: group.text, "data-word": letter + i, tabindex: i === 0 ? 0 : -1,
      class: group.content ? "" : "function",
    }, el("span", { dir: "auto" }, ...tokenText(group.text)))));
  }
  for (const item of list.children) {
    item.classList.toggle("query", item.dataset.word === word);
    item.setAttribute("aria-selected", String(item.dataset.word === word));
  }
}

/** Values as text in the cells, where cells are large enough and not too many. */
function fillValues(layer, { map, columns, cell, picture, head }) {
  const fit = cell >= CELL_WITH_VALUE && map.length <= MOST_VALUES;
  layer.hidden = !fit;
  if (!fit) return layer.replaceChildren();
  layer.style.gridTemplateColumns = `repeat(${columns.length}, ${cell}px)`;
  const texts = Array.from(map, (weight) => weightText(weight, picture.signed));
  if (layer.children.length !== texts.length) layer.replaceChildren(...texts.map(() => el("span")));
  const paper = getComputedStyle(layer).getPropertyValue("--panel").trim() || undefined;
  texts.forEach((text, i) => {
    const span = layer.children[i];
    if (span.textContent !== text) span.textContent = text;
    const weight = Math.min(1, Math.abs(map[i]));
    span.className = weight < 0.005 ? "none" : "";
    span.style.color = weight < 0.005 ? "" : inkOn(weightColor(picture, head, map[i]), weight, paper);
  });
  return undefined;
}
