// Which heads changed most between two steps, or differ most between two runs.

import { contributionMap, knowsContributions, normsOf } from "./contributions.js";
import { el } from "./dom.js";
import { allHeads, kindName } from "./measures.js";
import { changeOf, headMaps } from "./weights.js";

const MOST_CHANGES = 8;

/** The maps of a layer as the picture shows them, weights or contributions. */
function shownMaps(header, kind, layer, weights, contribution) {
  const norms = contribution ? normsOf(header, kind, layer) : null;
  return headMaps(weights).map((map, head) => (norms ? contributionMap(map, norms[head]) : map));
}

/** Heads of all kinds by how far they are apart: [{kind, layer, head, change}], the farthest first. */
export async function rankChanges(reader, place, other, contribution = false) {
  const [header, before] = await Promise.all([place, other].map((one) =>
    reader.header(one.run.name, one.sentence.tag, one.step)));
  const ranked = [];
  for (const kind of header.kinds) {
    const otherKind = before.kinds.find((one) => one.name === kind.name);
    if (!otherKind) continue;
    // Contributions are never compared with weights.
    if (contribution && ![header, before].every((one) => knowsContributions(one, kind.name))) continue;
    for (let layer = 0; layer < Math.min(kind.layers, otherKind.layers); layer++) {
      const [now, then] = await Promise.all([place, other].map((one) =>
        reader.weights(one.run.name, one.sentence.tag, one.step, kind.name, layer)));
      if (now.rows !== then.rows || now.columns !== then.columns || now.heads !== then.heads) continue;
      const maps = shownMaps(header, kind, layer, now, contribution);
      const olds = shownMaps(before, otherKind, layer, then, contribution);
      for (const { head } of allHeads({ layers: 1, heads: kind.heads })) {
        ranked.push({ kind: kind.name, layer, head, change: changeOf(maps[head], olds[head], now.columns) });
      }
    }
  }
  return ranked.sort((a, b) => b.change - a.change);
}

/** `onOpen(kind, layer, head)`: one was chosen. */
export function createChanges({ onOpen }) {
  const list = el("ol", { class: "changes" });
  const heading = el("h2");
  const root = el("section", { class: "panel", hidden: true, "aria-label": "Changed most" }, heading, list);
  let shown = 0;

  async function update(reader, model) {
    const turn = ++shown;
    const { against, state, place } = model;
    const wanted = Boolean(against?.place) && (state.compare === "step" || state.compare === "run");
    root.hidden = !wanted;
    if (!wanted) return;
    heading.textContent = state.compare === "run" ? `Differ most from ${against.name}`
      : `Changed most between ${against.name} and step ${place.step}`;
    const ranked = (await rankChanges(reader, place, against.place, state.contribution)).slice(0, MOST_CHANGES);
    if (turn !== shown) return;
    root.hidden = !ranked.length;
    const largest = ranked[0]?.change || 1;
    list.replaceChildren(...ranked.map((one) => el("li", {}, el("button", {
      type: "button", style: `--share: ${(one.change / largest).toFixed(3)}`,
      title: "Jensen-Shannon divergence in bits, mean over rows",
      onclick: () => onOpen(one.kind, one.layer, one.head),
    }, el("span", { text: `${kindName(one.kind)} layer ${one.layer + 1} head ${one.head + 1}` }),
    el("span", { class: "number", text: one.change.toFixed(2) })))));
  }

  return { root, update };
}
