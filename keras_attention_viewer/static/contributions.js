// Contribution beside weight: the weight times the norm of the transformed value (Kobayashi et al. 2020),
// as a share of its row, so that rows still sum to 1. Nothing here touches the page.

const BYTES_A_NORM = 4; // float32; first the first bytes of all numbers, then all second ones, ...

/** Whether a record has the norms of a kind's values. */
export function knowsContributions(header, kindName) {
  return typeof header.value_norms?.[kindName] === "string";
}

const decoded = new WeakMap(); // header -> by kind, the norms of its layers

/** The norms of one layer, one array a head, a number a column; null if the record has none. */
export function normsOf(header, kind, layer) {
  if (!knowsContributions(header, kind.name)) return null;
  if (!decoded.has(header)) decoded.set(header, {});
  const known = decoded.get(header);
  known[kind.name] ??= decodeNorms(header, kind);
  return known[kind.name][layer];
}

function decodeNorms(header, kind) {
  const bytes = atob(header.value_norms[kind.name]);
  const count = bytes.length / BYTES_A_NORM;
  const view = new DataView(new ArrayBuffer(BYTES_A_NORM));
  const normAt = (i) => {
    for (let byte = 0; byte < BYTES_A_NORM; byte++) view.setUint8(byte, bytes.charCodeAt(byte * count + i));
    return view.getFloat32(0, true);
  };
  const columns = header.tokens[kind.columns].length;
  return Array.from({ length: kind.layers }, (_, layer) => Array.from({ length: kind.heads }, (_, head) => {
    const first = (layer * kind.heads + head) * columns;
    return Float32Array.from({ length: columns }, (_, i) => normAt(first + i));
  }));
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
