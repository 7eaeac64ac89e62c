// Records that stand in the page itself.

import { wordsOf } from "./reader.js";

/** A source that reads `{index, entries: {run: {tag: {step: [base64 of gzip, ...]}}}}`. */
export function createEmbeddedSource({ index, entries }) {
  const blobOf = async (run, tag, step, number) => {
    const text = entries[run]?.[tag]?.[step]?.[number];
    if (text === undefined) throw new Error(`This page has no record of ${run}, ${tag}, step ${step}.`);
    try {
      return await unpack(text);
    } catch {
      throw new Error(`The record of ${run}, ${tag}, step ${step} is damaged.`);
    }
  };
  return {
    index: async () => index,
    header: async (run, tag, step) =>
      JSON.parse(new TextDecoder().decode(await blobOf(run, tag, step, 0))),
    weights: async (run, tag, step, kind, layer, header) => {
      const first = header.kinds.find((one) => one.name === kind).first_blob;
      return wordsOf(await blobOf(run, tag, step, first + layer));
    },
  };
}

async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}
