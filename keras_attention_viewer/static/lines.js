// Which lines and boxes a picture has, by the rules of the paper's figures. Nothing here touches the page.

import { weightColor } from "./colors.js";

/** Fainter lines are not drawn, in 255ths. */
const FAINTEST_LINE = 4;
/** More lines than this are unreadable and slow: each word keeps its strongest. */
const MOST_LINES = 20000;

/** A chosen word, "r3" or "c3", as {side: "row" or "column", index}; null if there is none. */
export function readWord(picture, word) {
  const match = /^([rc])(\d+)$/.exec(word);
  if (!match) return null;
  const side = match[1] === "r" ? "row" : "column";
  const index = Number(match[2]);
  return index < (side === "row" ? picture.rows : picture.columns).length ? { side, index } : null;
}

/**
 * The lines {row, column, color, opacity, width, order, of (heads)} of some heads, later heads on top. A line is as
 * opaque as its weight, in 255ths; several heads share the opacity where no word is chosen. `least`: the
 * smallest weight that has a line.
 */
export function linesOf(picture, heads, word, least = 0) {
  const chosen = readWord(picture, word);
  const share = chosen ? 1 : heads.length;
  const count = picture.columns.length;
  const [from, to, by] = cellsOf(picture, chosen);
  const lines = [];
  for (const [order, head] of heads.entries()) {
    const map = picture.maps[head];
    for (let i = from; i < to; i += by) {
      const level = Math.round(255 * Math.min(1, Math.abs(map[i]) / share));
      if (level < FAINTEST_LINE || Math.abs(map[i]) < least) continue;
      const row = Math.floor(i / count);
      const color = weightColor(picture, head, map[i]);
      lines.push({ row, column: i - row * count, color, opacity: level / 255, width: 2, order, of: heads.length });
    }
  }
  return !chosen && lines.length > MOST_LINES ? strongestLines(lines, picture.rows.length) : lines;
}

/** Where a chosen word's weights lie in a map: [from, to, by]; all of them if none is chosen. */
function cellsOf(picture, chosen) {
  const count = picture.columns.length;
  if (!chosen) return [0, picture.rows.length * count, 1];
  if (chosen.side === "row") return [chosen.index * count, (chosen.index + 1) * count, 1];
  return [chosen.index, picture.rows.length * count, count];
}

function strongestLines(lines, rowCount) {
  const most = Math.floor(MOST_LINES / rowCount);
  const byRow = Array.from({ length: rowCount }, () => []);
  for (const line of lines) byRow[line.row].push(line.opacity);
  const least = byRow.map((row) => row.sort((a, b) => b - a)[most] ?? 0);
  return lines.filter((line) => line.opacity > least[line.row]);
}

/**
 * The boxes behind the words opposite to a chosen word: {side, index, order, of, color, opacity},
 * one a head, side by side in the order of the heads. Faint boxes are kept. No word, no boxes.
 */
export function boxesOf(picture, heads, word) {
  const chosen = readWord(picture, word);
  if (!chosen) return [];
  const side = chosen.side === "row" ? "column" : "row";
  const [from, to, by] = cellsOf(picture, chosen);
  const boxes = [];
  heads.forEach((head, order) => {
    const map = picture.maps[head];
    for (let i = from; i < to; i += by) {
      const opacity = Math.round(255 * Math.min(1, Math.abs(map[i]))) / 255;
      if (opacity === 0) continue;
      const color = weightColor(picture, head, map[i]);
      boxes.push({ side, index: (i - from) / by, order, of: heads.length, color, opacity });
    }
  });
  return boxes;
}

/** What one word reads, or is read by: [{index, text, weights (one a head)}], the strongest first. */
export function readingsOf(picture, heads, word) {
  const chosen = readWord(picture, word);
  if (!chosen) return [];
  const groups = chosen.side === "row" ? picture.columns : picture.rows;
  const [from, , by] = cellsOf(picture, chosen);
  const strength = (weights) => weights.reduce((sum, weight) => sum + Math.abs(weight), 0);
  return groups
    .map((group, index) => (
      { index, text: group.text, weights: heads.map((head) => picture.maps[head][from + index * by]) }))
    .sort((a, b) => strength(b.weights) - strength(a.weights));
}
