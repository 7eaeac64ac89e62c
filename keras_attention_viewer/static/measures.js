// The measures and role labels that a header brings, for menus, order and words. Nothing here touches the page.

/** Measures of a head: key -> [name, explanation, whether the largest come first]. */
export const MEASURES = {
  confidence: ["confidence", "mean of each row's largest weight, without the end token", true],
  previous: ["previous", "share of rows whose largest weight is on the token before", true],
  next: ["next", "share of rows whose largest weight is on the token after", true],
  self: ["itself", "share of rows whose largest weight is on the same token", true],
  distance: ["distance", "mean distance in tokens between a word and the word it reads", false],
  entropy: ["entropy", "how widely a row is spread: 0 one word, 1 all alike", false],
  sink: ["sink", "mean weight on start and end tokens", true],
  punctuation: ["punctuation", "mean weight on punctuation", true],
  diagonal: ["diagonal", "mean weight near the diagonal", true],
  rare: ["rare words", "share of rows whose largest weight is on the rarest words", true],
  alignment_score: ["alignment score", "how much the head looks like a word alignment, without a reference", true],
  aer: ["AER", "alignment error rate against the reference alignment: 0 none, 1 all wrong", false],
  importance: ["importance", "loss without this head minus loss", true],
};

export const ROLES = ["sink", "punctuation", "previous token", "next token", "itself", "alignment",
  "diagonal", "rare words", "broad"];

/** A role needs at least this many rows; `keras_attention_viewer.measures` has the same. */
export const LABEL_ROWS = 100;
/** A head whose links are wrong more often than this, or whose score is below it, aligns nothing. */
const WORST_ALIGNMENT = 0.5;
/** The head of a run aligns no text in which it has a smaller share of its score there than this. */
const LEAST_SHARE = 0.8;

/** Whether this is the head that aligns best, and it does align. */
export function alignsWell({ best_alignment: best, aer, alignment_score: score = 1, score_here: here = score }) {
  return Boolean(best) && (typeof aer === "number" ? aer <= WORST_ALIGNMENT : score >= WORST_ALIGNMENT)
    && here >= LEAST_SHARE * score;
}

/** How well a head aligns, by the measure that chose it. */
export function alignmentText({ aer, alignment_score: score }) {
  return typeof aer === "number" ? `AER ${measureText(aer)}` : typeof score === "number" ? `alignment score ${measureText(score)}` : "";
}

/** Why no head has a star; "" where one has, or where no alignment was measured. */
export function noStarText(header) {
  const best = bestAlignment(header);
  if (!best || alignsWell(best.measures)) return "";
  const { layer, head, measures } = best;
  const name = `layer ${layer + 1} head ${head + 1}`;
  return alignsWell({ ...measures, score_here: undefined })
    ? `No star: of the run, ${name} aligns best (${alignmentText(measures)}), but what it reads here looks less like an alignment `
      + `(alignment score ${measureText(measures.score_here)}, there ${measureText(measures.alignment_score)}).`
    : `No star: even the best head, ${name}, has ${alignmentText(measures)} (at `
      + `${typeof measures.aer === "number" ? "most" : "least"} ${WORST_ALIGNMENT} is needed).`;
}

/** Of what the measures are. */
export function sampleText({ measured_sentences: count, measures_of: whose }) {
  const sentences = typeof count !== "number" ? "all measured sentences" : count === 1 ? "one measured sentence"
    : `the ${count} measured sentences`;
  return `This head, over ${sentences}${whose === "run" ? " of its run" : ""}`;
}

/** What is measured of a head: an object; empty if nothing is. */
export function measuresOf(header, kindName, layer, head) {
  const own = header.measures?.[kindName]?.[layer]?.[head] ?? {};
  const importance = header.importance?.[kindName]?.[layer]?.[head];
  return typeof importance === "number" ? { ...own, importance } : own;
}

/** The measures that at least one head of this kind has. */
export function measuresKnown(header, kind) {
  const heads = allHeads(kind).map(({ layer, head }) => measuresOf(header, kind.name, layer, head));
  return Object.keys(MEASURES).filter((key) => heads.some((one) => typeof one[key] === "number"));
}

/** All heads of a kind, in order: [{layer, head}]. */
export function allHeads(kind) {
  return Array.from({ length: kind.layers * kind.heads }, (_, i) => (
    { layer: Math.floor(i / kind.heads), head: i % kind.heads }));
}

/**
 * Heads with their measures, in the order of the measure `sort` ("": by layer). `label`: only those of
 * this role. `limit`: only those whose measure is as good as this number, as text.
 */
export function orderHeads(header, kind, { sort = "", label = "", limit = "" } = {}) {
  const heads = allHeads(kind).map((one) => (
    { ...one, measures: measuresOf(header, kind.name, one.layer, one.head) }));
  const chosen = label ? heads.filter((one) => one.measures.labels?.includes(label)) : heads;
  if (!(sort in MEASURES)) return chosen;
  const sign = MEASURES[sort][2] ? -1 : 1;
  const known = chosen.filter((one) => typeof one.measures[sort] === "number");
  known.sort((a, b) => sign * (a.measures[sort] - b.measures[sort]));
  const most = parseFloat(limit);
  if (!Number.isNaN(most)) return known.filter((one) => sign * (one.measures[sort] - most) <= 0);
  return [...known, ...chosen.filter((one) => !known.includes(one))];
}

/** The cross head that aligns best: {kind, layer, head, measures}, or null. */
export function bestAlignment(header) {
  for (const kind of header.kinds) {
    for (const { layer, head } of allHeads(kind)) {
      const measures = measuresOf(header, kind.name, layer, head);
      if (measures.best_alignment) return { kind, layer, head, measures };
    }
  }
  return null;
}

export function measureText(value) {
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** What the rows and the columns of a kind are. `read`: a decoder's row is the word it read last. */
export function sideNames(kind, read) {
  const decoder = read ? "word read last" : "word predicted";
  return [kind.rows === "decoder" ? decoder : "source word", kind.columns === "source" ? "source word" : "word before"];
}

const KIND_NAMES = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };

export function kindName(name) {
  return KIND_NAMES[name] ?? name;
}
