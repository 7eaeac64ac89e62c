// The steps of a run: a slider with play, and the curves of loss and BLEU above it.

import { drawAxes } from "./curve_axes.js";
import { el, fillSelect, svgEl } from "./dom.js";

const CURVES = { loss: ["loss", "#8B5CF6"], perplexity: ["perplexity", "#C2410C"], bleu: ["BLEU", "#0D9488"] };
const CURVES_WIDTH = 1000;
const CURVES_HEIGHT = 60;
const TICK_WIDTH = 45; // pixels of a step's number
const PLAY_PAUSES = [["1000", "½ ×"], ["500", "1 ×"], ["150", "3 ×"]]; // milliseconds a step

/** `onStep(step)` may return a promise; `onSpan(from, to)`: the curve between two steps was clicked. */
export function createSlider({ onStep, onSpan }) {
  const play = el("button", { type: "button", class: "play", title: "Play the steps (P)" });
  const range = el("input", { type: "range", min: 0, step: 1, "aria-label": "Step" });
  const speed = el("select", { class: "speed", "aria-label": "Speed" });
  fillSelect(speed, PLAY_PAUSES, "500");
  const step = el("output", { class: "step" });
  const legend = el("div", { class: "legend" });
  const curves = svgEl("svg", { class: "curves", viewBox: `0 0 ${CURVES_WIDTH} ${CURVES_HEIGHT}`,
    preserveAspectRatio: "none", "aria-hidden": "true" });
  const axes = el("div", { class: "axes" });
  const ticks = el("div", { class: "ticks", "aria-hidden": "true" });
  const root = el("section", { class: "panel timeline", "aria-label": "Steps" },
    el("div", { class: "now" }, play, step, speed),
    el("div", { class: "track" }, axes, curves, range, ticks), legend);
  let steps = [];
  let timer = 0;

  range.addEventListener("input", () => {
    stop();
    onStep(steps[range.value]);
  });
  curves.addEventListener("click", (event) => {
    if (steps.length < 2) return;
    const box = curves.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * (steps.length - 1);
    const from = Math.min(steps.length - 2, Math.max(0, Math.floor(at)));
    stop();
    onSpan(steps[from], steps[from + 1]);
  });
  new ResizeObserver(() => drawTicks(ticks, steps)).observe(ticks);
  play.addEventListener("click", () => (timer ? stop() : start()));
  document.addEventListener("visibilitychange", () => document.hidden && stop());

  function start() {
    if (steps.length < 2) return;
    if (Number(range.value) >= steps.length - 1) range.value = 0;
    else range.value = Number(range.value) + 1;
    timer = setTimeout(advance, speed.value);
    showPlay();
    onStep(steps[range.value]);
  }

  async function advance() {
    // A tab of TensorBoard that is not in front is a frame without height.
    if (window.innerHeight === 0 || Number(range.value) >= steps.length - 1) return stop();
    range.value = Number(range.value) + 1;
    const running = timer;
    await onStep(steps[range.value]);
    if (timer === running) timer = setTimeout(advance, speed.value);
    return undefined;
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    showPlay();
  }

  function showPlay() {
    play.textContent = timer ? "❚❚" : "▶";
    play.setAttribute("aria-label", timer ? "Pause" : "Play");
  }

  function update(model) {
    const { place, against, state, index } = model;
    steps = place.steps;
    root.hidden = steps.length < 2; // a page of a finished model has no steps
    range.max = steps.length - 1;
    range.disabled = play.disabled = steps.length < 2;
    const at = steps.indexOf(place.step);
    if (Number(range.value) !== at) range.value = at;
    range.setAttribute("aria-valuetext", `step ${place.step}`);
    step.textContent = `step ${place.step.toLocaleString("en")}`;
    const other = state.compare === "step" && against?.place ? steps.indexOf(against.place.step) : -1;
    drawCurves(curves, steps, place.run.scalars ?? {}, at, other);
    drawAxes(axes, CURVES, steps, place.run.scalars ?? {});
    drawTicks(ticks, steps);
    showLegend(legend, index, place);
    showPlay();
  }

  showPlay();
  return { root, update, toggle: () => play.click(), stop };
}

/** The place of any step among the logged ones, 0 to count - 1; these stand at even distances. */
export function placeOfStep(steps, step) {
  const after = steps.findIndex((one) => one >= step);
  if (after < 0) return steps.length - 1;
  if (after === 0) return 0;
  const [from, to] = [steps[after - 1], steps[after]];
  return after - 1 + (step - from) / (to - from);
}

function drawCurves(svg, steps, scalars, at, other) {
  const x = (place) => (steps.length < 2 ? 0 : place / (steps.length - 1) * CURVES_WIDTH);
  const parts = [svgEl("title", { text: "A click between two steps: what changed there?" })];
  if (other >= 0 && other !== at) {
    const [from, to] = [Math.min(at, other), Math.max(at, other)];
    parts.push(svgEl("rect", { class: "span", x: x(from), y: 0, width: x(to) - x(from), height: CURVES_HEIGHT }));
  }
  parts.push(svgEl("line", { class: "here", x1: x(at), x2: x(at), y1: 0, y2: CURVES_HEIGHT }));
  for (const [key, [, color]] of Object.entries(CURVES)) {
    const points = (scalars[key] ?? []).filter(([step]) => step >= steps[0] && step <= steps.at(-1));
    if (!points.length) continue;
    const values = points.map(([, value]) => value);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const y = (value) => CURVES_HEIGHT - 5 - (value - low) / (high - low || 1) * (CURVES_HEIGHT - 10);
    const line = points.map(([step, value]) => `${x(placeOfStep(steps, step)).toFixed(1)},${y(value).toFixed(1)}`);
    parts.push(svgEl("polyline", { class: "curve", "data-curve": key, points: line.join(" "), stroke: color }));
  }
  svg.replaceChildren(...parts);
}

/** As many step numbers as stand beside each other. */
function drawTicks(root, steps) {
  const most = Math.max(2, Math.floor(root.clientWidth / TICK_WIDTH));
  const every = Math.max(1, Math.ceil((steps.length - 1) / (most - 1)));
  const key = `${every}:${steps.join()}`;
  if (root.tickKey === key) return;
  root.tickKey = key;
  root.replaceChildren(...steps.flatMap((step, i) => {
    const last = steps.length - 1;
    if (i !== last && (i % every || last - i < every)) return [];
    const left = steps.length < 2 ? 0 : 100 * i / (steps.length - 1);
    return [el("span", { text: shortNumber(step), style: `left: ${left}%` })];
  }));
}

function shortNumber(n) {
  return n >= 10000 ? `${Math.round(n / 100) / 10}k` : String(n);
}

function showLegend(root, index, { run, step, steps }) {
  const isEven = steps.every((one, i) => i < 2 || one - steps[i - 1] === steps[1] - steps[0]);
  root.replaceChildren(...Object.entries(CURVES).flatMap(([key, [name, color]]) => {
    const last = (run.scalars?.[key] ?? []).findLast(([at]) => at <= step);
    return last ? [el("span", { style: `--curve: ${color}`, text: `${name} ${last[1].toFixed(2)}` })] : [];
  }), ...(isEven ? [] : [el("small", { class: "quiet", text: "steps not to scale", title: "Logged steps stand at equal distances" })]));
}
