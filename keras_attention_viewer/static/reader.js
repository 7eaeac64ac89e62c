// Reads a source once: what was read is kept, up to a number of bytes.
// A source: index(), header(run, tag, step), weights(run, tag, step, kind, layer, header) as 16-bit numbers.

import { stemOf, stepNear } from "./model.js";
import { tokenLists } from "./weights.js";
import { withWords } from "./words.js";

const MOST_BYTES = 150e6;
/** What a header says of the heads of its model. */
const HEAD_FIELDS = ["measures", "measured_sentences", "measures_of", "importance", "alignment_rows", "gold"];

/** About how many bytes a header takes, with its norms once as text and once as numbers. */
function headerBytes({ predictions, value_norms: norms }) {
  const texts = Object.values(norms ?? {}).reduce((sum, text) => sum + text.length, 0);
  return 20000 + 2 * texts + 300 * (predictions?.length ?? 0);
}

/** Adds shapes and a memory to a source. */
export function createReader(source) {
  const kept = new Map(); // key -> {promise, bytes}, the least used first

  function remember(key, bytesOf, read) {
    const entry = kept.get(key) ?? { promise: read(), bytes: 0 };
    kept.delete(key);
    kept.set(key, entry);
    entry.promise.then(
      (value) => {
        entry.bytes = bytesOf(value);
        forget();
      },
      () => kept.delete(key),
    );
    return entry.promise;
  }

  function forget() {
    let total = 0;
    for (const entry of kept.values()) total += entry.bytes;
    for (const [key, entry] of kept) {
      if (total <= MOST_BYTES) return;
      total -= entry.bytes;
      kept.delete(key);
    }
  }

  // A run that is made again writes the same steps anew: what is kept is known by its time, too.
  let index = { runs: [] };
  function keyOf(run, tag, step, ...rest) {
    const sentence = index.runs.find((one) => one.name === run)?.sentences.find((one) => one.tag === tag);
    return JSON.stringify([run, tag, step, sentence?.written?.[sentence.steps.indexOf(step)], ...rest]);
  }

  const header = (run, tag, step) => remember(keyOf(run, tag, step), headerBytes, () => readHeader(run, tag, step));
  /** A header; that of a model's own translation has the measures of the references, whose sentences are more. */
  async function readHeader(run, tag, step) {
    const own = withWords(await source.header(run, tag, step));
    const reference = own.target === "output" && index.runs.find((one) => one.name === run)?.sentences
      .find((one) => one.target === "reference" && stemOf(one.tag) === stemOf(tag));
    const other = reference && await header(run, reference.tag, stepNear(reference.steps, step)).catch(() => null);
    return other?.measures ? { ...own, ...Object.fromEntries(HEAD_FIELDS.map((key) => [key, other[key]])) } : own;
  }
  async function readWeights(run, tag, step, kind, layer) {
    const about = await header(run, tag, step);
    return shapeWeights(about, kind, await source.weights(run, tag, step, kind, layer, about));
  }
  return {
    index: async () => {
      index = await source.index();
      return index;
    },
    header,
    /** {heads, rows, columns, data} of one layer, counted from 0. */
    weights: (...place) =>
      remember(keyOf(...place), ({ data }) => data.byteLength, () => readWeights(...place)),
  };
}

/** The shape of a layer's weights, which its header tells. */
function shapeWeights(header, kindName, data) {
  const kind = header.kinds.find((one) => one.name === kindName);
  if (!kind) throw new Error(`This record has no ${kindName} attention.`);
  const { rows, columns } = tokenLists(header, kind, false);
  if (data.length !== kind.heads * rows.length * columns.length) {
    throw new Error(`The ${kindName} weights do not fit their tokens: ${data.length} numbers for ` +
      `${kind.heads} heads of ${rows.length} x ${columns.length} tokens.`);
  }
  return { heads: kind.heads, rows: rows.length, columns: columns.length, data };
}

/** Bytes as 16-bit numbers, little-endian on every machine. */
export function wordsOf(buffer) {
  const view = new DataView(buffer);
  return Uint16Array.from({ length: buffer.byteLength >> 1 }, (_, i) => view.getUint16(2 * i, true));
}
