// The whole viewer: `mount` puts it into an element.

import { alignmentLines, alignmentOf, createAlignmentNotes } from "./alignment.js";
import { createChanges } from "./change.js";
import { createCompareMenu, createKindMenu, createPlaceMenu, createViewMenu, swappedState } from "./controls.js";
import { el } from "./dom.js";
import { createExamples } from "./examples.js";
import { caveatOf, createExplanation } from "./explain.js";
import { createExportMenu } from "./export_menu.js";
import { createGrid } from "./grid.js";
import { createHeadCurves } from "./head_curves.js";
import { createHeadMenu, toggledHeads } from "./heads.js";
import { KEYS_HELP, listenForKeys } from "./keys.js";
import { boxesOf, linesOf } from "./lines.js";
import { bestAlignment, sideNames } from "./measures.js";
import { createMessages } from "./messages.js";
import { buildModel, findPlace, gridPictures, layerPicture } from "./model.js";
import { createPanes } from "./panes.js";
import { createReader } from "./reader.js";
import { createReadings } from "./readings.js";
import { createScatter } from "./scatter.js";
import { createSieve } from "./sieve.js";
import { createSlider } from "./slider.js";
import { createStore, flatState, isAligned } from "./state.js";
import { explainOnDemand } from "./terms.js";
import { createThoughts, markUnsure } from "./thoughts.js";
import { createTour } from "./tour.js";
import { meanMap } from "./weights.js";

/** The parts that only need the model. */
const MODEL_PARTS = ["place", "slider", "kind", "grid", "scatter", "heads", "view", "sieve", "compare", "exports", "explanation", "thoughts"];

/** Shows what `source` has. `host`: the page around; `tools` stands beside the heads, `onModel` hears what is shown, `onOther` says why not another word. */
export async function mount(element, source, host) {
  const viewer = new Viewer(element, createReader(source), host);
  await viewer.reload();
}

class Viewer {
  constructor(element, reader, host) {
    this.reader = reader;
    this.host = host;
    this.turn = 0;
    this.store = createStore(host.getState(), (state, push) => {
      if (push !== null) host.setState(flatState(state), push);
      this.drawn = this.update();
    });
    this.parts = this.makeParts();
    this.root = this.layOut();
    element.replaceChildren(this.root);
    const theme = () => { this.root.dataset.theme = host.theme(); };
    theme();
    host.onTheme(() => {
      theme();
      if (this.model) this.drawPanes(); // the ink of values depends on it
    });
    host.onState((flat) => this.store.replace(flat));
    host.onReload(() => this.reload());
    new ResizeObserver(() => this.resized()).observe(this.parts.panes.root);
    listenForKeys(this);
    explainOnDemand(this.root);
  }

  makeParts() {
    const set = (patch, push) => this.set(patch, push);
    const open = (layer, head, add) => this.openHead(layer, head, add);
    const grid = createGrid({ onOpen: open, set });
    return {
      messages: createMessages(),
      title: el("h2", { class: "title" }),
      note: el("p", { class: "note", hidden: true }),
      panes: createPanes({
        onWord: (word) => this.set({ word }),
        onHover: (word, text) => this.parts.readings.update(this.readModel(), word || this.store.get().word, text),
      }),
      place: createPlaceMenu({ set }),
      slider: createSlider({
        onStep: (step) => this.set({ step }, false),
        onSpan: (from, to) => set({ step: to, compare: "step", against: String(from) }),
      }),
      kind: createKindMenu({ set }),
      grid,
      curves: createHeadCurves({ set, grid: grid.root, note: grid.root.appendChild(el("p", { class: "quiet", hidden: true })) }),
      scatter: createScatter({ onOpen: open, set }),
      sieve: createSieve({ set, onFound: (patch, word) => this.showWord(patch, word) }),
      heads: createHeadMenu({ set }),
      view: createViewMenu({ set, onView: (view) => this.openView(view) }),
      compare: createCompareMenu({ set, onSwap: () => set(swappedState(this.model)) }),
      changes: createChanges({ onOpen: (kind, layer, head) => set({ kind, layer, heads: [head] }) }),
      readings: createReadings(),
      alignment: createAlignmentNotes({ onOpen: open }),
      exports: createExportMenu({ set, model: () => this.model, onCopy: () => this.copyLink(),
        hasLink: () => this.host.link() !== "" }),
      explanation: createExplanation(),
      examples: createExamples(),
      thoughts: createThoughts({ onWord: (word) => this.set({ word }), onOther: this.host.onOther }),
      caveat: el("p", {}),
      tour: createTour(() => this.root),
    };
  }

  layOut() {
    const { place, slider, messages, kind, grid, curves, scatter, changes, title, heads, view, sieve, compare, note, panes,
      readings, alignment, exports, explanation, thoughts, examples, caveat, tour } = this.parts;
    readings.root.append(alignment.root);
    grid.root.querySelector("header").append(curves.root);
    this.more = el("details", { class: "more" }, el("summary", { text: "Compare, find, save" }),
      el("div", { class: "bar flow" }, compare.root, sieve.root, exports.root));
    this.content = el("div", { class: "content", hidden: true },
      el("h1", { class: "unseen", text: "Attention" }), place.root, slider.root,
      el("div", { class: "halves" },
        el("div", { class: "left" }, kind.root, grid.root, scatter.root, changes.root),
        el("section", { class: "panel picture", "aria-label": "Attention" },
          el("header", {}, title, this.more), el("div", { class: "bar flow menus" }, view.root, heads.root, this.host.tools, view.row),
          note, explanation.root,
          el("div", { class: "stage" }, panes.root, readings.root), thoughts.root, examples.root,
          el("footer", { class: "quiet caveat" }, caveat, el("p", { text: KEYS_HELP }),
            el("button", { type: "button", text: "Show the tour", onclick: tour.start })))));
    return el("div", { class: "attention-viewer" }, messages.root, this.content, tour.root);
  }

  /** Cells become larger or smaller, lines longer or shorter. */
  resized() {
    const width = this.parts.panes.root.clientWidth;
    if (width === this.width || !this.model) return;
    this.width = width;
    this.drawPanes();
  }

  /** Changes the state; the promise is done when the change is drawn. */
  set(patch, push = true) {
    this.store.set(patch, push);
    return this.drawn;
  }

  async reload() {
    let index;
    try {
      index = await this.reader.index();
    } catch (error) {
      this.seen = "";
      this.say([`The attention records cannot be read. ${error.message}`]);
      return;
    }
    const seen = JSON.stringify(index);
    if (seen === this.seen) return;
    this.seen = seen;
    this.index = index;
    await this.update();
  }

  async update() {
    const turn = ++this.turn;
    if (!this.index) return;
    try {
      const model = await buildModel(this.reader, this.index, this.store.get());
      if (turn !== this.turn) return;
      this.say([], model?.place.run);
      this.content.hidden = !model;
      if (!model) return;
      this.model = model;
      await this.draw(turn);
    } catch (error) {
      if (turn !== this.turn) return;
      this.seen = ""; // the next reload tries again
      this.say([error.message], findPlace(this.index, this.store.get())?.run);
      if (!this.model) this.drawMenus();
    }
  }

  /** Where nothing could be read yet, the user may choose another step, sentence or run. */
  drawMenus() {
    const state = this.store.get();
    const place = findPlace(this.index, state);
    if (!place) return;
    this.content.hidden = false;
    for (const part of ["place", "slider"]) this.parts[part].update({ state, index: this.index, place, against: null });
  }

  async draw(turn) {
    const { model, parts } = this;
    for (const part of MODEL_PARTS) parts[part].update(model);
    parts.title.textContent = model.title;
    parts.caveat.textContent = caveatOf(model.state);
    parts.note.hidden = !model.problem;
    parts.note.textContent = model.problem;
    parts.readings.describe(model);
    const { compare, window } = model.state;
    if (compare + window !== this.chosen) this.more.open ||= Boolean(compare || window); // where it is ended
    this.chosen = compare + window;
    await this.drawPanes();
    if (turn !== this.turn) return;
    this.host.onModel?.(model);
    const pictures = await gridPictures(this.reader, model);
    if (turn !== this.turn) return;
    parts.grid.paint(pictures);
    await Promise.all([parts.changes, parts.curves, parts.examples].map((part) => part.update(this.reader, model)));
    if (!this.toured) parts.tour.startOnce();
    this.toured = true;
  }

  async drawPanes() {
    const { model, parts } = this;
    const { state } = model;
    const aligned = isAligned(model);
    parts.alignment.root.hidden = !aligned;
    parts.compare.root.hidden = aligned;
    if (aligned) return this.drawAlignment();
    const matrix = state.view === "matrix";
    const names = sideNames(model.kind, state.read);
    const views = parts.panes.views(matrix ? "matrix" : "columns", model.panes.length, model.linked);
    model.panes.forEach(({ title, picture, heads: own = model.heads }, i) => {
      views[i].title.textContent = title;
      views[i].title.hidden = model.panes.length < 2 && !picture.signed;
      const heads = own.filter((head) => head < picture.maps.length);
      if (!heads.length) heads.push(0);
      if (matrix) {
        const one = heads.length === 1 ? heads[0] : -1;
        const width = views[i].root.clientWidth - 4;
        views[i].view.update({ picture, names, map: meanMap(picture, heads), head: one, word: state.word, width,
          whole: state.whole });
      } else {
        views[i].view.update({ rows: picture.rows, columns: picture.columns, names, word: state.word,
          lines: (word) => linesOf(picture, heads, word, state.least), boxes: (word) => boxesOf(picture, heads, word) });
      }
    });
    parts.readings.update(model, state.word);
    markUnsure(parts.panes.root.firstChild, model, model.panes[0].picture);
    return undefined;
  }

  /** The links of one head between whole words, beside the true ones. */
  async drawAlignment() {
    const { model, parts, reader } = this;
    const { place, header, kind, layer, heads } = model;
    const picture = await layerPicture(reader, place, header, kind, layer, { ...model.state, words: true, content: false, window: 0 });
    if (model !== this.model) return;
    const alignment = alignmentOf(picture, meanMap(picture, heads), header.alignment);
    const lines = alignmentLines(alignment, heads.length === 1 ? heads[0] : -1);
    model.alignment = { picture, lines };
    const [{ view, title }] = parts.panes.views("columns", 1);
    title.hidden = true;
    const ofWord = (word) => (word ? lines.filter((line) => word === `r${line.row}` || word === `c${line.column}`) : lines);
    view.update({ rows: picture.rows, columns: picture.columns, names: sideNames(kind, model.state.read),
      word: model.state.word, lines: ofWord, boxes: () => [] });
    parts.readings.update({ ...model, picture }, model.state.word);
    markUnsure(parts.panes.root.firstChild, model, picture);
    await parts.alignment.update(reader, model, alignment);
  }

  readModel() {
    const { model } = this;
    return model.state.view === "alignment" && model.alignment ? { ...model, picture: model.alignment.picture } : model;
  }

  openHead(layer, head, add) {
    const { model } = this;
    const all = model.heads.length === model.kind.heads;
    if (add && layer === model.layer && !all) {
      return this.set({ layer, heads: toggledHeads(model.heads, head) });
    }
    return this.set({ layer, heads: [head] });
  }

  openView(view) {
    const { model } = this;
    if (view !== "alignment") return this.set({ view, ...(model.state.view === "alignment" ? { word: "" } : {}) });
    const read = (model.newest.alignment_rows ?? "predicted") === "read";
    const best = model.kind.name === "cross" && model.heads.length === 1 ? null : bestAlignment(model.newest);
    return this.set({ view, read, word: "", compare: "", against: "", kind: "cross",
      ...(best ? { layer: best.layer, heads: [best.head] } : {}) });
  }

  say(texts, shown = null) {
    this.parts.messages.say(this.index?.runs ?? [], texts, shown);
  }

  async showWord(patch, word) {
    await this.set(patch);
    for (const item of this.parts.panes.root.querySelectorAll(`[data-word="${word}"]`)) item.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  async copyLink() {
    this.host.setState(flatState(this.store.get()), false);
    const link = this.host.link();
    try {
      await navigator.clipboard.writeText(link);
      return "copied";
    } catch {
      window.prompt("Copy this link", link);
      return "";
    }
  }
}
