// What is seen as a file: SVG for papers, PNG for slides.

import { download, el, toggleButton } from "./dom.js";
import { linesSvg, matrixSvg } from "./export_svg.js";
import { boxesOf, linesOf, readWord } from "./lines.js";
import { meanMap } from "./weights.js";

const PNG_SCALE = 4; // pixels a point

export function createExportMenu({ set, model }) {
  const turned = toggleButton("Turned", "Export lines with the words that read above, as in the paper's figures",
    (on) => set({ turned: on }));
  const button = (text, save) => el("button", { type: "button", text, onclick: () => save(model()) });
  const root = el("div", { class: "bar exports" }, turned, button("SVG", saveSvg), button("PNG", savePng));
  return {
    root,
    update({ state }) {
      turned.setAttribute("aria-pressed", String(state.turned));
      turned.hidden = state.view === "matrix";
    },
  };
}

/** The SVG of what a model shows. */
export function svgOf(model) {
  const { state, heads, title, place, alignment } = model;
  const { picture } = model.panes[0];
  const options = { turned: state.turned, title: `${title}, step ${place.step}` };
  if (state.view === "matrix") {
    return matrixSvg({ picture, map: meanMap(picture, heads), head: heads.length === 1 ? heads[0] : -1 }, options);
  }
  if (state.view === "alignment" && alignment) {
    return linesSvg({ ...alignment.picture, lines: alignment.lines, boxes: [], query: null }, options);
  }
  return linesSvg({
    rows: picture.rows,
    columns: picture.columns,
    lines: linesOf(picture, heads, state.word),
    boxes: boxesOf(picture, heads, state.word),
    query: readWord(picture, state.word),
  }, options);
}

function fileName({ kind, layer, heads, place }, ending) {
  const head = heads.length === 1 ? `_head_${heads[0] + 1}` : "";
  return `attention_${kind.name}_layer_${layer + 1}${head}_step_${place.step}.${ending}`;
}

function saveSvg(model) {
  download(fileName(model, "svg"), new Blob([svgOf(model)], { type: "image/svg+xml" }));
}

async function savePng(model) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(model))}`;
  await image.decode();
  const points = image.naturalWidth * 0.75; // a browser has 96 pixels an inch, a point is a 72nd
  const canvas = el("canvas", { width: Math.round(points * PNG_SCALE),
    height: Math.round(points * PNG_SCALE * image.naturalHeight / image.naturalWidth) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(fileName(model, "png"), blob));
}
