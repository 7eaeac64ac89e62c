// What one word reads, as a table: for the eye, and for a screen reader.

import { headColor } from "./colors.js";
import { el, tokenText } from "./dom.js";
import { readWord, readingsOf } from "./lines.js";
import { MEASURES, alignmentText, alignsWell, measureText, measuresOf, sampleText } from "./measures.js";
import { ROLE_TERMS, term } from "./terms.js";
import { weightText } from "./weights.js";

const MOST_READINGS = 12;
const MOST_HEADS = 10;

export function createReadings() {
  const table = el("table", { class: "readings" });
  const cell = el("p", { class: "cell-text", role: "status" });
  const roles = el("div", { class: "roles" });
  const sample = el("h3");
  const measures = el("dl", { class: "measures" });
  const about = el("div", {}, sample, roles, measures);
  const root = el("aside", { class: "side" }, about, cell, table);

  /** `word`: the hovered or chosen one; `parts`: of a text about what the mouse is on. */
  function update(model, word, parts = []) {
    cell.replaceChildren(...parts);
    cell.hidden = model.state.view !== "matrix";
    const { picture, heads } = model;
    const chosen = readWord(picture, word);
    table.hidden = !chosen;
    if (!chosen) return;
    const shown = heads.slice(0, MOST_HEADS);
    const group = (chosen.side === "row" ? picture.rows : picture.columns)[chosen.index];
    const caption = chosen.side === "row" ? " reads" : " is read by";
    const headings = shown.map((head) => el("th", { scope: "col", text: `h${head + 1}`,
      style: `--head: ${headColor(head)}` }));
    const lines = readingsOf(picture, shown, word).slice(0, MOST_READINGS).map((reading) =>
      el("tr", {}, el("th", { scope: "row", dir: "auto", title: reading.text }, ...tokenText(reading.text)),
        ...reading.weights.map((weight, i) => weightCell(weight, shown[i], picture.signed))));
    table.replaceChildren(
      el("caption", {}, el("q", { dir: "auto" }, ...tokenText(group.text)), caption),
      el("thead", {}, el("tr", {}, el("td"), ...headings)), el("tbody", {}, ...lines));
  }

  /** The roles and numbers of the open head, over all measured sentences. */
  function describe(model) {
    const { header, kind, layer, heads } = model;
    const one = heads.length === 1 ? measuresOf(header, kind.name, layer, heads[0]) : {};
    root.classList.toggle("broad", heads.length > 3);
    about.hidden = heads.length > 1;
    sample.textContent = one.rows ? sampleText(header) : "";
    roles.replaceChildren(...[...(alignsWell(one) ? [`★ best alignment: ${alignmentText(one)}`] : []), ...(one.labels ?? [])]
      .map((label) => term(label, ROLE_TERMS[label] ?? ROLE_TERMS.alignment, "badge")));
    measures.replaceChildren(...Object.keys(MEASURES).filter((key) => typeof one[key] === "number").flatMap((key) => [
      el("dt", {}, term(MEASURES[key][0], MEASURES[key][1])),
      el("dd", { "data-measure": key, text: measureText(one[key]) })]));
    if (one.rows) {
      measures.append(el("dt", {}, term("rows", "rows that were measured, of all these sentences")),
        el("dd", { text: String(one.rows) }));
    }
  }

  return { root, update, describe };
}

function weightCell(weight, head, signed) {
  const share = Math.min(1, Math.abs(weight));
  const style = `--share: ${share.toFixed(3)}; --head: ${headColor(head)}`;
  return el("td", { text: weightText(weight, signed), style });
}
