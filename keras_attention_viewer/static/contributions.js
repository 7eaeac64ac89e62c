// Contribution beside weight: the weight times the norm of the transformed value (Kobayashi et al. 2020),
// as a share of its row, so that rows still sum to 1. Nothing here touches the page.

const BYTES_A_NORM = 4;

/** Whether a record has the norms of a kind's values. */
export function knowsContributions(header, kindName) {
  return typeof header.value_norms?.[kindName] === "string";
}

/** The norms of one layer, one array a head, a number a column; null if the record has none. */
export function normsOf(header, kind, layer) {
  if (!knowsContributions(header, kind.name)) return null;
  const bytes = Uint8Array.from(atob(header.value_norms[kind.name]), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const columns = header.tokens[kind.columns].length;
  return Array.from({ length: kind.heads }, (_, head) => {
    const first = (layer * kind.heads + head) * columns;
    return Float32Array.from({ length: columns }, (_, i) => view.getFloat32(BYTES_A_NORM * (first + i), true));
  });
}

/** A map of weights, as shares of contribution; a row that nothing contributes to stays 0. */
export function contributionMap(map, norms) {
  const shares = new Float32Array(map.length);
  for (let start = 0; start < map.length; start += norms.length) {
    let sum = 0;
    for (let i = 0; i < norms.length; i++) sum += map[start + i] * norms[i];
    if (sum > 0) for (let i = 0; i < norms.length; i++) shares[start + i] = map[start + i] * norms[i] / sum;
  }
  return shares;
}
