// Pictures as SVG, with the sizes, colours and rules of the figures of "Attention Is All You Need".
// Numbers are points. Nothing here touches the page.

import { weightColor } from "./colors.js";
import { weightText } from "./weights.js";

const PAPER_PITCH = 11.27; // from word to word
const PAPER_GAP = 75.1; // between the two rows of words
const PAPER_WORD = 60.08; // length of a word's box
const PAPER_FONT = 7.5;
const PAPER_QUERY = "#D3D3D3";
const POINTS_A_PIXEL = 0.75;
const LONGEST_WORD = 40; // letters; the rest of a longer token is cut
const LETTER_WIDTH = 0.56; // of the font's size, on average
const MOST_CELL_TEXTS = 400;
// The first letter is one of a script that is written from the right.
const RIGHT_TO_LEFT = /^[^\p{L}]*[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFC]/u;

/**
 * Words in two rows with lines between them. `view`: {rows, columns, lines, boxes, query ({side, index}
 * or null)}. `turned`: asking words above, read words below, as in the paper; else left and right.
 */
export function linesSvg(view, { turned = false, title = "" } = {}) {
  const band = bandLength([...view.rows, ...view.columns]);
  const across = 2 * band + PAPER_GAP;
  const along = PAPER_PITCH * Math.max(view.rows.length, view.columns.length);
  const start = { row: 0, column: band + PAPER_GAP };
  const box = (side, index, from, length) => (turned
    ? { x: index * PAPER_PITCH, y: start[side] + from, width: PAPER_PITCH, height: length }
    : { x: start[side] + from, y: index * PAPER_PITCH, width: length, height: PAPER_PITCH });
  const boxes = view.boxes.map(({ side, index, order, of, color, opacity }) => tag("rect", {
    class: "box", ...box(side, index, order * band / of, band / of), fill: color, "fill-opacity": opacity }));
  if (view.query) {
    const { side, index } = view.query;
    boxes.unshift(tag("rect", { class: "query", ...box(side, index, 0, band), fill: PAPER_QUERY }));
  }
  const lines = view.lines.map((line) => {
    const [from, to] = [line.row, line.column].map((index) => (index + 0.5) * PAPER_PITCH);
    const ends = turned ? { x1: from, y1: band, x2: to, y2: band + PAPER_GAP }
      : { x1: band, y1: from, x2: band + PAPER_GAP, y2: to };
    return tag("line", { ...ends, stroke: line.color, "stroke-opacity": line.opacity,
      "stroke-width": line.width * POINTS_A_PIXEL });
  });
  const words = [
    ...view.rows.map((group, i) => wordTag(group.text, i, band - 2, turned, turned)),
    ...view.columns.map((group, i) => wordTag(group.text, i, band + PAPER_GAP + 2, turned, !turned)),
  ];
  return svgDocument(turned ? along : across, turned ? across : along, title,
    layer("boxes", boxes) + layer("lines", lines) + layer("words", words));
}

/** One map: asking words at the left, read words above, cells as opaque as their weights. */
export function matrixSvg({ picture, map, head }, { title = "" } = {}) {
  const { rows, columns } = picture;
  const band = bandLength([...rows, ...columns]);
  const cells = [];
  const texts = [];
  map.forEach((weight, i) => {
    const [x, y] = [band + i % columns.length * PAPER_PITCH, band + Math.floor(i / columns.length) * PAPER_PITCH];
    const opacity = Math.round(255 * Math.min(1, Math.abs(weight))) / 255;
    if (opacity > 0) {
      cells.push(tag("rect", { x, y, width: PAPER_PITCH, height: PAPER_PITCH,
        fill: weightColor(picture, head, weight), "fill-opacity": opacity }));
    }
    if (map.length <= MOST_CELL_TEXTS && Math.abs(weight) >= 0.005) {
      const middle = { x: x + PAPER_PITCH / 2, y: y + PAPER_PITCH / 2 + 1.3, "text-anchor": "middle" };
      texts.push(tag("text", { ...middle, "font-size": 3.8 }, weightText(weight, picture.signed)));
    }
  });
  const words = [
    ...rows.map((group, i) => {
      const y = band + (i + 0.5) * PAPER_PITCH + 2.6;
      return svgWord(group.text, { x: band - 3, y }, false);
    }),
    ...columns.map((group, i) => {
      const [x, y] = [band + (i + 0.5) * PAPER_PITCH + 2.6, band - 3];
      return svgWord(group.text, { x, y, transform: `rotate(-90 ${number(x)} ${number(y)})` }, true);
    }),
  ];
  return svgDocument(band + columns.length * PAPER_PITCH, band + rows.length * PAPER_PITCH, title,
    layer("cells", cells) + layer("values", texts) + layer("words", words));
}

function wordTag(text, index, across, turned, atStart) {
  const along = (index + 0.5) * PAPER_PITCH + 2.6; // the middle of the letters, not their foot
  if (!turned) return svgWord(text, { x: across, y: along }, atStart);
  const turn = `rotate(-90 ${number(along)} ${number(across)})`;
  return svgWord(text, { x: along, y: across, transform: turn }, atStart);
}

/** A word that ends at its place, or starts there. A word mark is faint, and on the side where the word begins. */
function svgWord(text, place, atStart) {
  const short = shortWord(text);
  const turnsLeft = RIGHT_TO_LEFT.test(short);
  const attributes = { ...place, ...(turnsLeft ? { direction: "rtl" } : {}),
    "text-anchor": atStart === turnsLeft ? "end" : "start" };
  if (!short.startsWith("▁")) return tag("text", attributes, short);
  const mark = tag("tspan", { class: "mark", "fill-opacity": 0.3 }, "▁");
  return tagOf("text", attributes, mark + tag("tspan", {}, short.slice(1)));
}

function shortWord(text) {
  const letters = [...text];
  return letters.length > LONGEST_WORD ? `${letters.slice(0, LONGEST_WORD - 1).join("")}…` : text;
}

/** The paper's length of a word's box, or what the longest word needs. */
function bandLength(groups) {
  const longest = Math.max(...groups.map((group) => [...shortWord(group.text)].length));
  return Math.max(PAPER_WORD, longest * LETTER_WIDTH * PAPER_FONT + 4);
}

function svgDocument(width, height, title, content) {
  const size = { width: `${number(width)}pt`, height: `${number(height)}pt`,
    viewBox: `0 0 ${number(width)} ${number(height)}` };
  return tagOf("svg", { xmlns: "http://www.w3.org/2000/svg", ...size, "font-family": "Arial, Helvetica, sans-serif",
    "font-size": PAPER_FONT },
  tag("title", {}, title) + tag("rect", { class: "paper", width: "100%", height: "100%", fill: "#FFFFFF" }) + content);
}

function layer(name, tags) {
  return tagOf("g", { class: name }, tags.join(""));
}

function tag(name, attributes, text = "") {
  return tagOf(name, attributes, escapeText(text));
}

function tagOf(name, attributes, content) {
  const written = Object.entries(attributes).map(([key, value]) =>
    ` ${key}="${escapeText(typeof value === "number" ? number(value) : value)}"`).join("");
  return `<${name}${written}>${content}</${name}>`;
}

function number(value) {
  return String(Math.round(value * 10000) / 10000);
}

/** Text that stays text; letters that XML forbids are dropped. */
function escapeText(text) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return String(text)
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "")
    .replace(/[&<>"']/g, (letter) => entities[letter]);
}
