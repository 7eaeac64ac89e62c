// Words of texts without spaces, such as Chinese, Japanese and Thai ones. Nothing here touches the page.

import { barePiece } from "./weights.js";

const NO_SPACES = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

/** A header whose words are those that the browser finds between spaces; true links keep the words that they count. */
export function withWords(header) {
  if (header.alignment || !Intl.Segmenter) return header;
  const lists = Object.entries(header.tokens).map(([name, tokens]) => [name, splitWords(tokens)]);
  return { ...header, tokens: Object.fromEntries(lists) };
}

/** Tokens, numbered anew by words that begin where a token begins. */
function splitWords(tokens) {
  let [word, place, starts] = [-1, 0, new Set()];
  return tokens.map((token, i) => {
    if (token.special || token.word === null) return token;
    if (i === 0 || token.word !== tokens[i - 1].word) {
      [place, starts] = [0, startsOf(tokens.filter((one) => one.word === token.word).map((one) => barePiece(one.text)).join(""))];
      word += 1;
    } else if (starts.has(place)) word += 1;
    place += barePiece(token.text).length;
    return { ...token, word };
  });
}

/** Where words begin inside of a text. */
function startsOf(text) {
  if (!NO_SPACES.test(text)) return new Set();
  const parts = [...new Intl.Segmenter([], { granularity: "word" }).segment(text)];
  return new Set(parts.map(({ index }) => index).filter((index) => index > 0));
}
