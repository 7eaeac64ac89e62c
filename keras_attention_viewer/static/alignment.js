// The alignment of words that a cross head tells, beside the true one where it is known.

import { GOLD_COLOR, weightColor } from "./colors.js";
import { el, svgEl } from "./dom.js";
import { headersOf } from "./head_curves.js";
import { alignsWell, measureText, orderHeads } from "./measures.js";

const MOST_RANKED = 6;
const TREND_WIDTH = 220;
const TREND_HEIGHT = 44;

/**
 * Links of one head, {row, column} in a picture of whole words: each content word that asks, and the
 * content word it reads most. With the true links, their groups, and the alignment error rate.
 */
export function alignmentOf(picture, map, gold) {
  const columns = contentIndices(picture.columns);
  const rows = contentIndices(picture.rows);
  if (!columns.length) return { links: [], gold: [], errorRate: null };
  const weight = (row, column) => map[row * picture.columns.length + column];
  const links = rows.map((row) => (
    { row, column: columns.reduce((best, column) => (weight(row, column) > weight(row, best) ? column : best)) }));
  if (!gold) return { links, gold: [], errorRate: null };
  const place = (indices, groups, word) => indices.find((i) => groups[i].word === word);
  const known = gold
    .map(([source, target]) => (
      { row: place(rows, picture.rows, target), column: place(columns, picture.columns, source) }))
    .filter(({ row, column }) => row !== undefined && column !== undefined);
  const right = links.filter((link) => known.some((one) => one.row === link.row && one.column === link.column));
  const all = links.length + known.length;
  return { links, gold: known, errorRate: all ? 1 - 2 * right.length / all : null };
}

function contentIndices(groups) {
  return groups.flatMap((group, i) => (group.content ? [i] : []));
}

/** The lines of an alignment: the true links broad and golden below, the head's (-1: those of a mean) above. */
export function alignmentLines({ links, gold }, head) {
  const color = weightColor({ signed: false }, head, 1);
  return [
    ...gold.map((link) => ({ ...link, color: GOLD_COLOR, opacity: 0.65, width: 8 })),
    ...links.map((link) => ({ ...link, color, opacity: 1, width: 2 })),
  ];
}

/** What stands beside the links: error rates, all cross heads in their order, the best rate over the steps. */
export function createAlignmentNotes({ onOpen }) {
  const here = el("p", { class: "error-rate" });
  const legend = el("p", { class: "quiet" });
  const heading = el("h3");
  const ranking = el("ol", { class: "changes", "aria-label": "Cross heads by alignment" });
  const trend = svgEl("svg", { class: "trend", viewBox: `0 0 ${TREND_WIDTH} ${TREND_HEIGHT}`, role: "img" });
  const trendText = el("p", { class: "quiet" });
  const root = el("div", { class: "alignment-notes" }, here, legend, heading, ranking, trend, trendText);
  let shown = 0;

  async function update(reader, model, alignment) {
    const turn = ++shown;
    const { header, kind, place, heads } = model;
    const whose = heads.length > 1 ? `the mean of ${heads.length} heads` : "the head";
    const known = alignment.errorRate !== null;
    here.textContent = known ? `AER of this sentence: ${measureText(alignment.errorRate)}`
      : "No true alignment is known: the order of the heads is a guess.";
    legend.textContent = `${known ? "gold: the true links · colour" : "lines"}: the word that ${whose} reads most`;
    const key = header.gold || known ? "aer" : "alignment_score";
    heading.textContent = `${key === "aer" ? "AER" : "Alignment score"} of all measured sentences, by head`;
    const ranked = orderHeads(header, kind, { sort: key }).slice(0, MOST_RANKED);
    ranking.replaceChildren(...ranked.map((one) => rankedHead(one, key, onOpen)));
    const headers = await headersOf(reader, place);
    if (turn === shown) drawTrend(trend, trendText, headers, kind);
  }

  return { root, update };
}

function rankedHead({ layer, head, measures }, key, onOpen) {
  const mark = alignsWell(measures) ? "★ " : "";
  const value = typeof measures[key] === "number" ? measureText(measures[key]) : "";
  return el("li", {}, el("button", { type: "button", onclick: () => onOpen(layer, head) },
    el("span", { text: `${mark}layer ${layer + 1} head ${head + 1}` }),
    el("span", { class: "number", text: key === "aer" && value ? `AER ${value}` : value })));
}

/** The lowest alignment error rate of any head, step by step. */
function drawTrend(svg, text, headers, kind) {
  const points = headers.flatMap((header, i) => {
    const rates = orderHeads(header, kind).map(({ measures }) => measures.aer)
      .filter((rate) => typeof rate === "number");
    return rates.length ? [[i, Math.min(...rates), header.step]] : [];
  });
  svg.toggleAttribute("hidden", points.length < 2);
  text.hidden = points.length < 2;
  if (points.length < 2) return;
  const x = (i) => 2 + i / (headers.length - 1) * (TREND_WIDTH - 4);
  const y = (rate) => 3 + (1 - rate) * (TREND_HEIGHT - 6);
  svg.replaceChildren(svgEl("polyline", { class: "curve", stroke: "currentColor",
    points: points.map(([i, rate]) => `${x(i).toFixed(1)},${y(rate).toFixed(1)}`).join(" ") }));
  const [first, last] = [points[0], points.at(-1)];
  const said = [first, last].map(([, rate, step]) => `${measureText(rate)} at step ${step}`);
  text.textContent = `best AER: ${said.join(", ")}`;
  svg.setAttribute("aria-label", text.textContent);
}
