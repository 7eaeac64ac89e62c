// What is shown, as one flat object: it stands in the link, so that a link gives the same view again.

const list = {
  read: (text) => text.split(",").map((part) => parseInt(part, 10) - 1).filter((head) => head >= 0),
  write: (heads) => heads.map((head) => head + 1).join(","),
};
const counted = { read: (text) => Math.max(-1, (parseInt(text, 10) || 0) - 1), write: (n) => String(n + 1) };
const whole = { read: (text) => parseInt(text, 10), write: String };
const fraction = { read: parseFloat, write: String };
const plain = { read: (text) => text, write: (text) => text };
const flag = { read: (text) => text === "1", write: (on) => (on ? "1" : "0") };

/** Each field: its default, and how it stands in a link (layers and heads count from 1 there). */
const FIELDS = {
  run: ["", plain], // "": the first that has attention
  tag: ["", plain], // sentence and target, "attention/0/reference"
  step: [-1, whole], // -1: the newest, also when another one arrives
  kind: ["", plain], // "": the last one, cross-attention in a translation model
  layer: [-1, counted], // -1: that of the best alignment head, or the last
  heads: [[], list], // []: all of the layer
  view: ["lines", plain], // lines, matrix, alignment
  word: ["", plain], // "r3": row 3 (a querying word) is chosen; "c3": column 3 (a word that is read)
  words: [true, flag], // pieces of a word are merged
  contribution: [false, flag], // weight times the norm of the transformed value, as a share of the row
  content: [false, flag], // without special tokens and punctuation, renormalised
  read: [false, flag], // a decoder's row stands for the word it read last, not for the one it predicts
  compare: ["", plain], // "", step, head, run
  against: ["", plain], // a step, "layer.head", or a run
  sort: ["", plain], // a measure that orders the grid
  limit: ["", plain], // the worst value of that measure that is shown
  label: ["", plain], // a role that filters the grid
  curve: ["aer", plain], // a measure whose curve over the steps stands below each thumbnail
  scatter: ["", plain], // two measures, "entropy,distance", over which the heads are scattered; "": closed
  beside: [false, flag], // what is compared with stands beside, and is not subtracted
  least: [0, fraction], // lines below this weight are not drawn
  window: [0, whole], // which part of a long text is shown, counted from 1; 0: all of it
  whole: [false, flag], // a matrix is made as small as the room for it
  turned: [false, flag], // exported pictures: words upright, as in the paper
};
/** Whether a model's picture has the links of an alignment, which only cross-attention has. */
export function isAligned({ state, kind }) {
  return state.view === "alignment" && kind.name === "cross";
}

/** A word's number means something else after one of these changes. */
const MOVES_WORDS = ["run", "tag", "kind", "words", "content", "window"];

export function defaultState() {
  return Object.fromEntries(Object.entries(FIELDS).map(([key, [value]]) => [key, value]));
}

/** The state of a link: an object of strings; what is missing or senseless gets its default. */
export function parseState(flat) {
  const state = defaultState();
  for (const [key, [, form]] of Object.entries(FIELDS)) {
    if (typeof flat[key] !== "string") continue;
    const value = form.read(flat[key]);
    if (!Number.isNaN(value)) state[key] = value;
  }
  return state;
}

/** What differs from the defaults, as an object of strings. */
export function flatState(state) {
  const flat = {};
  for (const [key, [value, form]] of Object.entries(FIELDS)) {
    const text = form.write(state[key]);
    if (text !== form.write(value)) flat[key] = text;
  }
  return flat;
}

/** A link's part after "#", with a prefix before each key. */
export function writeQuery(flat, prefix = "") {
  return Object.entries(flat)
    .map(([key, text]) => `${prefix}${key}=${encodeURIComponent(text)}`).join("&");
}

export function readQuery(text, prefix = "") {
  const flat = {};
  for (const part of text.split("&")) {
    const at = part.indexOf("=");
    if (at < 0 || !part.startsWith(prefix)) continue;
    try {
      flat[part.slice(prefix.length, at)] = decodeURIComponent(part.slice(at + 1));
    } catch {
      continue; // a broken link says nothing here
    }
  }
  return flat;
}

/** Holds the state; tells its listener about each change. */
export function createStore(flat, listener) {
  let state = parseState(flat);
  return {
    get: () => state,
    /** `patch`: changed fields. `push`: a place the back button returns to. */
    set(patch, push = true) {
      const next = { ...state, ...patch };
      if (!("word" in patch) && MOVES_WORDS.some((key) => next[key] !== state[key])) next.word = "";
      if (JSON.stringify(next) === JSON.stringify(state)) return;
      state = next;
      listener(state, push);
    },
    replace(other) {
      state = parseState(other);
      listener(state, null);
    },
  };
}
