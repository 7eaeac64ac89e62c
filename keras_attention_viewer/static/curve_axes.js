// The ends of the axes of the curves above the steps: what their lowest and their highest points mean.

import { el } from "./dom.js";
import { TERMS } from "./terms.js";

/** Fills `root` with the range of each curve: the first at the left, the others at the right. */
export function drawAxes(root, curves, steps, scalars) {
  const known = Object.entries(curves).flatMap(([key, [name, color]]) => {
    const values = (scalars[key] ?? []).filter(([step]) => step >= steps[0] && step <= steps.at(-1)).map(([, value]) => value);
    return values.length ? [{ key, name, color, low: Math.min(...values), high: Math.max(...values) }] : [];
  });
  root.replaceChildren(...known.map((one, i) => el("span", {
    class: i ? "axis end" : "axis", style: `--curve: ${one.color}; --line-of: ${i}`, "data-curve": one.key,
    tabindex: 0, "data-explain": `${one.name}: ${TERMS[one.key] ?? ""} The curve goes from ${axisText(one.low)} to ${axisText(one.high)}.`,
  }, el("span", { text: axisText(one.high) }), el("span", { text: one.name }), el("span", { text: axisText(one.low) }))));
}

function axisText(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}
