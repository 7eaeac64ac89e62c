// From stored weights to the numbers that are shown. Nothing here touches the page.
// A picture: {rows, columns (groups of tokens), maps (one Float32Array a head, rows x columns), signed}.

import { contributionMap } from "./contributions.js";
import { windowOf } from "./windows.js";

/** The token lists of one kind's rows and columns. `read`: a decoder's row is the word it read last. */
export function tokenLists(header, kind, read) {
  const decoder = read ? header.tokens.decoder_input : header.tokens.decoder_output;
  return {
    rows: kind.rows === "decoder" ? decoder : header.tokens[kind.rows],
    columns: header.tokens[kind.columns],
  };
}

/** Tokens as groups {text, special, content, word, members}; `byWord` merges the pieces of a word. */
export function groupTokens(tokens, byWord) {
  const groups = [];
  tokens.forEach((token, i) => {
    const last = groups.at(-1);
    const content = !token.special && !token.punctuation;
    if (byWord && last && !token.special && token.word !== null && token.word === last.word) {
      last.members.push(i);
      last.content ||= content;
    } else {
      groups.push({ text: token.text, special: token.special, content, word: token.word, members: [i] });
    }
  });
  for (const group of byWord ? groups : []) {
    if (!group.special) group.text = wordText(group.members.map((i) => tokens[i].text));
  }
  return groups;
}

/** A piece without the marks of SentencePiece, WordPiece and subword-nmt. */
export function barePiece(piece) {
  return piece.replace(/^▁|^##/u, "").replace(/@@$/u, "");
}

/** A word from its pieces, with letters for bytes. */
function wordText(pieces) {
  const bare = pieces.map(barePiece).join("");
  return bare.replace(/(<0x[0-9A-F]{2}>)+/gu, textOfBytes) || pieces.join("");
}

/** "<0xC3><0xA4>" as "ä"; bytes that are no text stay what they are. */
function textOfBytes(pieces) {
  const bytes = Uint8Array.from(pieces.match(/[0-9A-F]{2}(?=>)/gu), (byte) => parseInt(byte, 16));
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return pieces;
  }
}

/** Splits stored weights, (heads, rows, columns) in 65535ths, into one array of floats a head. */
export function headMaps({ heads, rows, columns, data }) {
  const size = rows * columns;
  return Array.from({ length: heads }, (_, head) => {
    const map = new Float32Array(size);
    for (let i = 0; i < size; i++) map[i] = data[head * size + i] / 65535;
    return map;
  });
}

/** Sums over the pieces of a column, averages over the pieces of a row. */
export function mergeMap(map, columnCount, rows, columns) {
  const merged = new Float32Array(rows.length * columns.length);
  rows.forEach((row, r) => {
    columns.forEach((column, c) => {
      let sum = 0;
      for (const t of row.members) for (const s of column.members) sum += map[t * columnCount + s];
      merged[r * columns.length + c] = sum / row.members.length;
    });
  });
  return merged;
}

/** Divides each row by its sum; a row without weight stays 0. */
export function renormalise(map, columnCount) {
  for (let start = 0; start < map.length; start += columnCount) {
    let sum = 0;
    for (let i = start; i < start + columnCount; i++) sum += map[i];
    if (sum > 0) for (let i = start; i < start + columnCount; i++) map[i] /= sum;
  }
  return map;
}

/** The groups of both sides that are shown, of all the text. `options`: the state's words and content. */
export function shownGroups({ rows, columns }, options) {
  const chosen = (tokens) => {
    const all = groupTokens(tokens, options.words);
    const content = all.filter((group) => group.content);
    return options.content && content.length ? content : all;
  };
  return { rows: chosen(rows), columns: chosen(columns) };
}

/**
 * One layer as it is shown. `options`: the state's words, content, read and window; `norms`: those of the layer's
 * values, where contributions are shown in place of weights.
 */
export function makePicture(header, kind, weights, options, norms = null) {
  const lists = tokenLists(header, kind, options.read);
  const { rows, columns } = shownGroups(lists, options);
  const untouched = columns.length === lists.columns.length && rows.length === lists.rows.length;
  const maps = headMaps(weights).map((weightMap, head) => {
    const map = norms ? contributionMap(weightMap, norms[head]) : weightMap;
    const merged = untouched ? map : mergeMap(map, weights.columns, rows, columns);
    return options.content ? renormalise(merged, columns.length) : merged;
  });
  return windowOf({ rows, columns, maps, signed: false }, options.window);
}

export function sameTokens(one, other) {
  const texts = (picture) => JSON.stringify([picture.rows, picture.columns]
    .map((groups) => groups.map((group) => group.text)));
  return texts(one) === texts(other);
}

/** One picture minus another; `head` (or -1: each its own) is the head that is taken away. */
export function differencePicture(one, other, head = -1) {
  const maps = one.maps.map((map, h) => {
    const away = other.maps[head < 0 ? h : head];
    return map.map((weight, i) => weight - away[i]);
  });
  return { ...one, maps, signed: true };
}

/** The mean of the maps of some heads. */
export function meanMap(picture, heads) {
  if (heads.length === 1) return picture.maps[heads[0]];
  const mean = new Float32Array(picture.maps[0].length);
  for (const head of heads) {
    const map = picture.maps[head];
    for (let i = 0; i < mean.length; i++) mean[i] += map[i] / heads.length;
  }
  return mean;
}

/** How far two maps are apart: the mean over rows of the Jensen-Shannon divergence, in bits, 0 to 1. */
export function changeOf(one, other, columnCount) {
  let total = 0;
  for (let i = 0; i < one.length; i++) {
    const middle = (one[i] + other[i]) / 2;
    if (one[i] > 0) total += one[i] * Math.log2(one[i] / middle) / 2;
    if (other[i] > 0) total += other[i] * Math.log2(other[i] / middle) / 2;
  }
  return Math.max(0, total / (one.length / columnCount));
}

/** Shrinks a map to at most `size` x `size`: each pixel is the largest weight below it. */
export function poolMap(map, rows, columns, size) {
  const height = Math.min(rows, size);
  const width = Math.min(columns, size);
  if (height === rows && width === columns) return { map, rows, columns };
  const pooled = new Float32Array(height * width);
  for (let r = 0; r < rows; r++) {
    const line = Math.floor(r * height / rows) * width;
    for (let c = 0; c < columns; c++) {
      const at = line + Math.floor(c * width / columns);
      const weight = map[r * columns + c];
      if (Math.abs(weight) > Math.abs(pooled[at])) pooled[at] = weight;
    }
  }
  return { map: pooled, rows: height, columns: width };
}

/** 0.904 as "0.90"; differences with their sign. */
export function weightText(weight, signed) {
  const text = Math.abs(weight).toFixed(2);
  if (!signed || text === "0.00") return text;
  return (weight < 0 ? "−" : "+") + text;
}
