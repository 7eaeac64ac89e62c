// What is seen as a file, SVG for papers, PNG for slides; or as a link.

import { download, el, toggleButton } from "./dom.js";
import { linesSvg, matrixSvg } from "./export_svg.js";
import { boxesOf, linesOf, readWord } from "./lines.js";
import { meanMap } from "./weights.js";

const PNG_SCALE = 4; // pixels a point
// Browsers have no larger canvas, and the memory for it would be a gigabyte.
const LONGEST_PNG = 16_000;
const LARGEST_PNG = 64e6;

/** `onCopy()` copies a link and returns what to say; `hasLink()`: whether the page has an address. */
export function createExportMenu({ set, model, onCopy, hasLink }) {
  const turned = toggleButton("Turned", "Export lines with the words that read above, as in the paper's figures",
    (on) => set({ turned: on }));
  const button = (text, save) => el("button", { type: "button", text, onclick: () => save(model()) });
  const said = el("span", { class: "quiet", role: "status" });
  const png = async (shown) => {
    said.textContent = "";
    said.textContent = await savePng(shown);
  };
  const copy = el("button", { type: "button", text: "Copy link", title: "A link to exactly this view",
    onclick: async () => { said.textContent = await onCopy(); } });
  const root = el("div", { class: "bar exports" }, turned, button("SVG", saveSvg), button("PNG", png), copy, said);
  return {
    root,
    update({ state }) {
      turned.setAttribute("aria-pressed", String(state.turned));
      turned.hidden = state.view === "matrix";
      copy.hidden = !hasLink();
    },
  };
}

/** The SVG of what a model shows. */
export function svgOf(model) {
  const { state, heads, title, place, alignment } = model;
  const { picture } = model.panes[0];
  const options = { turned: state.turned, title: place.steps.length > 1 ? `${title}, step ${place.step}` : title };
  if (state.view === "matrix") {
    return matrixSvg({ picture, map: meanMap(picture, heads), head: heads.length === 1 ? heads[0] : -1 }, options);
  }
  if (state.view === "alignment" && alignment) {
    return linesSvg({ ...alignment.picture, lines: alignment.lines, boxes: [], query: null }, options);
  }
  return linesSvg({
    rows: picture.rows,
    columns: picture.columns,
    lines: linesOf(picture, heads, state.word, state.least),
    boxes: boxesOf(picture, heads, state.word),
    query: readWord(picture, state.word),
  }, options);
}

function fileName({ kind, layer, heads, place }, ending) {
  const head = heads.length === 1 ? `_head_${heads[0] + 1}` : "";
  const step = place.steps.length > 1 ? `_step_${place.step}` : ""; // a finished model has one, and it says nothing
  return `attention_${kind.name}_layer_${layer + 1}${head}${step}.${ending}`;
}

function saveSvg(model) {
  download(fileName(model, "svg"), new Blob([svgOf(model)], { type: "image/svg+xml" }));
}

/** Saves a PNG; returns what is to say about it. */
async function savePng(model) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(model))}`;
  await image.decode();
  // A browser has 96 pixels an inch, a point is a 72nd.
  const [width, height] = [image.naturalWidth * 0.75, image.naturalHeight * 0.75];
  const scale = Math.min(PNG_SCALE, LONGEST_PNG / Math.max(width, height), Math.sqrt(LARGEST_PNG / (width * height)));
  const canvas = el("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => { canvas.toBlob(done); });
  if (!blob) return "This picture is too large for a PNG: save it as SVG.";
  download(fileName(model, "png"), blob);
  return scale < PNG_SCALE ? "A large picture: the PNG has fewer pixels than usual." : "";
}
