// From the state to what is shown: reads, prepares and compares. Nothing here touches the page.

import { knowsContributions, normsOf } from "./contributions.js";
import { bestAlignment, kindName } from "./measures.js";
import { differencePicture, makePicture, sameTokens } from "./weights.js";

const NO_CONTRIBUTIONS = "This record has no contributions, so its weights are shown.";

/** Where the state points to: {run, sentence, step, steps}; null if no run has attention. */
export function findPlace(index, state) {
  const usable = index.runs.filter((one) => one.sentences.length);
  const run = usable.find((one) => one.name === state.run) ?? usable[0];
  if (!run) return null;
  const sentence = run.sentences.find((one) => one.tag === state.tag) ?? run.sentences[0];
  return { run, sentence, steps: sentence.steps, step: stepNear(sentence.steps, state.step) };
}

/** The sentence of a run with the same text as one of another run; undefined if it has none. */
export function sameSentence(run, { tag, text, target }) {
  const all = run.sentences.filter((one) => one.text === text && one.target === target);
  return all.find((one) => one.tag === tag) ?? all[0];
}

/** What a run is called: its name may be only a dot. */
export function runTitle(run) {
  return run.title ?? run.name;
}

/** What the reference and the output of a sentence have in common. */
export function stemOf(tag) {
  return tag.slice(0, tag.lastIndexOf("/"));
}

/** The last logged step at or before the wanted one; -1 wants the newest. */
export function stepNear(steps, wanted) {
  if (wanted < 0) return steps.at(-1);
  return steps.findLast((step) => step <= wanted) ?? steps[0];
}

/**
 * What is in front: {place, header, kind, layer, heads (indices), picture, panes, against, title, problem}.
 * `panes`: the pictures side by side, [{title, picture}]; one, unless two cannot be subtracted.
 */
export async function buildModel(reader, index, wanted) {
  const place = findPlace(index, wanted);
  if (!place) return null;
  const header = await reader.header(place.run.name, place.sentence.tag, place.step);
  // It only says where to begin; if it is damaged, the step in front does.
  const newest = await reader.header(place.run.name, place.sentence.tag, place.steps.at(-1)).catch(() => header);
  const chosen = chooseHeads(header, newest, wanted);
  const known = knowsContributions(header, chosen.kind.name);
  const state = { ...wanted, contribution: wanted.contribution && known };
  const own = await layerPicture(reader, place, header, chosen.kind, chosen.layer, state);
  const model = { state, index, place, header, newest, ...chosen, picture: own, known, problem: "" };
  if (wanted.contribution && !known) model.problem = NO_CONTRIBUTIONS;
  model.title = headTitle(chosen.kind, chosen.layer, chosen.heads, state);
  model.panes = [{ title: `step ${place.step}`, picture: own }];
  model.against = findAgainst(index, state, place);
  if (model.against) await compare(reader, model, own);
  return model;
}

/** Kind, layer and heads; what the state leaves open is the best alignment head, else the last layer. */
function chooseHeads(header, newest, state) {
  const best = bestAlignment(newest);
  const kind = header.kinds.find((one) => one.name === state.kind)
    ?? header.kinds.find((one) => one.name === "cross") ?? header.kinds.at(-1);
  const open = state.layer < 0 || state.layer >= kind.layers;
  const useBest = open && best?.kind.name === kind.name && !state.heads.length;
  const layer = useBest ? best.layer : open ? kind.layers - 1 : state.layer;
  const named = (useBest ? [best.head] : state.heads).filter((head) => head < kind.heads);
  const heads = named.length ? named : Array.from({ length: kind.heads }, (_, head) => head);
  return { kind, layer, heads };
}

function headTitle(kind, layer, heads, state) {
  const some = heads.length === kind.heads && heads.length > 1 ? "all heads"
    : `${heads.length > 1 ? "heads" : "head"} ${heads.map((head) => head + 1).join(", ")}`;
  return `${kindName(kind.name)} · layer ${layer + 1} · ${some}${state.contribution ? " · contribution" : ""}`;
}

export async function layerPicture(reader, place, header, kind, layer, state) {
  const weights = await reader.weights(place.run.name, place.sentence.tag, place.step, kind.name, layer);
  return makePicture(header, kind, weights, state, state.contribution ? normsOf(header, kind, layer) : null);
}

/** What the state compares with: {place, layer, head, name}; null if nothing, or nothing that is there. */
function findAgainst(index, state, place) {
  if (state.compare === "step" && state.against !== "") {
    const step = stepNear(place.steps, Number(state.against) || 0);
    return { place: { ...place, step }, name: `step ${step}` };
  }
  if (state.compare === "head" && state.against) {
    const [layer, head] = state.against.split(".").map((part) => parseInt(part, 10) - 1);
    return { place, layer, head, name: `layer ${layer + 1} head ${head + 1}` };
  }
  const run = index.runs.find((one) => one.name === state.against);
  if (state.compare !== "run" || !run) return null;
  const title = runTitle(run);
  const sentence = sameSentence(run, place.sentence);
  if (!sentence) return { place: null, name: title, problem: `Run ${title} has no record of this sentence.` };
  const step = stepNear(sentence.steps, place.step);
  return { place: { run, sentence, steps: sentence.steps, step }, name: `${title}, step ${step}` };
}

/** Subtracts what is compared with, or shows it beside where that makes no sense. */
async function compare(reader, model, own) {
  const { against, kind, layer, state, place } = model;
  if (!against.place) {
    model.problem = against.problem;
    return;
  }
  const other = await againstPicture(reader, against, kind, layer, state);
  if (typeof other === "string") {
    model.problem = other;
    return;
  }
  const mine = state.compare === "head" ? model.title : state.compare === "run"
    ? `${runTitle(place.run)}, step ${place.step}` : `step ${place.step}`;
  const fits = sameTokens(own, other);
  if (fits && own.maps.length === other.maps.length && !state.beside) {
    model.picture = differencePicture(own, other, against.head ?? -1);
    model.panes = [{ title: `${mine} − ${against.name}`, picture: model.picture }];
  } else {
    const whose = against.head === undefined ? {} : { heads: [against.head] };
    model.panes = [{ title: mine, picture: own }, { title: against.name, picture: other, ...whose }];
    model.linked = fits; // the same word is pointed at in both
    if (state.beside && fits) return;
    model.problem = fits ? `The two have ${own.maps.length} and ${other.maps.length} heads: shown side by side.`
      : "The tokens differ, so both are shown side by side, without a difference.";
  }
}

/** The picture of what is compared with, or a sentence that says why there is none. */
export async function againstPicture(reader, against, kind, layer, state) {
  const header = await reader.header(against.place.run.name, against.place.sentence.tag, against.place.step);
  const otherKind = header.kinds.find((one) => one.name === kind.name);
  const otherLayer = against.layer ?? layer;
  const head = against.head ?? 0;
  if (!otherKind || !(otherLayer >= 0 && otherLayer < otherKind.layers) || !(head >= 0 && head < otherKind.heads)) {
    return `${against.name} has no ${kindName(kind.name).toLowerCase()} layer ${otherLayer + 1}` +
      `${against.head === undefined ? "" : ` head ${against.head + 1}`}: nothing to compare with.`;
  }
  if (state.contribution && !knowsContributions(header, kind.name)) {
    return `${against.name} has no contributions: nothing to compare with.`;
  }
  return layerPicture(reader, against.place, header, otherKind, otherLayer, state);
}

/** The pictures of all layers of the kind, as differences where the state compares and that is possible. */
export async function gridPictures(reader, model) {
  const { kind, place, header, against } = model;
  const state = { ...model.state, window: 0 }; // thumbnails give the overview
  const layers = Array.from({ length: kind.layers }, (_, layer) => layer);
  return Promise.all(layers.map(async (layer) => {
    const own = await layerPicture(reader, place, header, kind, layer, state);
    if (!against?.place || state.beside) return own;
    const other = await againstPicture(reader, against, kind, layer, state);
    const fits = typeof other !== "string" && sameTokens(own, other) && own.maps.length === other.maps.length;
    return fits ? differencePicture(own, other, against.head ?? -1) : own;
  }));
}
