// Records from the TensorBoard plugin.

import { wordsOf } from "./reader.js";

/** A source that asks the server below the address `base`. `prepare` asks for the first index already. */
export function createHttpSource(base) {
  let prepared = null;

  async function ask(route, query = {}) {
    const parameters = new URLSearchParams(query).toString();
    const response = await fetch(`${base}/${route}${parameters && `?${parameters}`}`);
    if (!response.ok) throw new Error(await reasonOf(response));
    return response;
  }
  const askIndex = async () => (await ask("index")).json();
  return {
    prepare() {
      prepared = askIndex();
      prepared.catch(() => {}); // `index` tells
    },
    index() {
      const answer = prepared ?? askIndex();
      prepared = null;
      return answer;
    },
    header: async (run, tag, step) => (await ask("header", { run, tag, step })).json(),
    weights: async (run, tag, step, kind, layer) =>
      wordsOf(await (await ask("weights", { run, tag, step, kind, layer })).arrayBuffer()),
  };
}

async function reasonOf(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answers ${response.status}.`;
  }
}
