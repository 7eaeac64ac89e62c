// One measure of each head over the steps, as a small curve below its thumbnail: when did it become what it is?

import { headColor } from "./colors.js";
import { fillSelect, selectField, svgEl } from "./dom.js";
import { MEASURES, allHeads, measureText, measuresKnown, measuresOf } from "./measures.js";
import { placeOfStep } from "./slider.js";

const CURVE_WIDTH = 100;
const CURVE_HEIGHT = 26;

/** By layer and head, "1.0": the points [step, value] of a measure, from the headers of several steps. */
export function curvesOf(headers, kind, measure) {
  return new Map(allHeads(kind).map(({ layer, head }) => [`${layer}.${head}`, headers.flatMap((header) => {
    const value = measuresOf(header, kind.name, layer, head)[measure];
    return typeof value === "number" ? [[header.step, value]] : [];
  })]));
}

/** The headers of all steps of the sentence in front; those that cannot be read are left out. */
export async function headersOf(reader, { run, sentence, steps }) {
  const read = await Promise.allSettled(steps.map((step) => reader.header(run.name, sentence.tag, step)));
  return read.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
}

/** `grid`: the element with the thumbnails, a button each. */
export function createHeadCurves({ set, grid, note }) {
  const choice = selectField("Over the steps", (value) => set({ curve: value }));
  let shown = 0;

  async function update(reader, model) {
    const turn = ++shown;
    const { place, header, kind, state } = model;
    const known = measuresKnown(header, kind);
    const measure = known.includes(state.curve) ? state.curve : "";
    choice.root.hidden = place.steps.length < 2 || !known.length;
    fillSelect(choice.select, [["", "no curves"], ...known.map((key) => [key, MEASURES[key][0]])], measure);
    note.hidden = true;
    const curves = measure && !choice.root.hidden ? curvesOf(await headersOf(reader, place), kind, measure) : new Map();
    if (turn !== shown) return;
    draw(curves, measure, place);
  }

  function draw(curves, measure, place) {
    const all = [...curves.values()].filter((points) => points.length > 1);
    const values = all.flat().map(([, value]) => value);
    const range = [Math.min(...values), Math.max(...values)];
    for (const button of grid.querySelectorAll("button")) {
      button.querySelector("svg")?.remove();
      const points = curves.get(`${button.dataset.layer}.${button.dataset.head}`);
      if (!(points?.length > 1)) continue;
      const svg = svgEl("svg", { class: "head-curve", viewBox: `0 0 ${CURVE_WIDTH} ${CURVE_HEIGHT}`,
        preserveAspectRatio: "none", "aria-hidden": "true" });
      svg.replaceChildren(...curveParts(points, range, place, headColor(Number(button.dataset.head))));
      button.firstChild.after(svg);
      const said = [points[0], points.at(-1)].map(([step, value]) => `${measureText(value)} at step ${step}`);
      button.title = `${button.dataset.label}; ${MEASURES[measure][0]} from ${said.join(" to ")}`;
      button.setAttribute("aria-label", button.title);
    }
    note.hidden = !measure || !curves.size;
    note.textContent = !all.length ? `${MEASURES[measure]?.[0]} was measured at one step only: there is no curve.`
      : `Each curve: ${MEASURES[measure][0]} from step ${place.steps[0]} to ${place.steps.at(-1)}, `
        + `all from ${measureText(range[0])} (bottom) to ${measureText(range[1])} (top). The line is step ${place.step}.`;
  }

  return { root: choice.root, update };
}

function curveParts(points, [low, high], { steps, step }, color) {
  const x = (at) => (placeOfStep(steps, at) / (steps.length - 1) * CURVE_WIDTH).toFixed(1);
  const y = (value) => (CURVE_HEIGHT - 3 - (value - low) / (high - low || 1) * (CURVE_HEIGHT - 6)).toFixed(1);
  return [svgEl("line", { class: "here", x1: x(step), x2: x(step), y1: 0, y2: CURVE_HEIGHT }),
    svgEl("polyline", { class: "curve", stroke: color, points: points.map(([at, value]) => `${x(at)},${y(value)}`).join(" ") })];
}
