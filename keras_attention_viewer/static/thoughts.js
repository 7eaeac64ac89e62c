// What the model thought: the probability of each word that it predicts, the runners-up, the beam's alternatives.

import { el, rovingFocus, tabStop, tokenText } from "./dom.js";
import { readWord } from "./lines.js";
import { isAligned } from "./state.js";
import { groupTokens, tokenLists } from "./weights.js";

/** A word below this probability is unsure: the model would rather have said something else, or anything else. */
const UNSURE = 0.5;

/** The words that are predicted, as groups with the probability `p` of all their pieces, one after another. */
export function thoughtWords(header, byWord) {
  return groupTokens(header.tokens.decoder_output, byWord).map((group) => ({ ...group, p: chanceOf(header, group.members) }));
}

/** The probability of some predicted tokens together. */
function chanceOf(header, members) {
  return members.reduce((product, i) => product * header.predictions[i].p, 1);
}

/** The probability of the word in a row of a picture; null where a row is no predicted word. */
export function chanceOfRow({ header, kind, state }, row) {
  if (kind.rows !== "decoder" || !header.predictions) return null;
  // A word that is read was predicted one row before; the start token was not.
  const members = row.members.map((i) => (state.read ? i - 1 : i)).filter((i) => i >= 0);
  return members.length ? chanceOf(header, members) : null;
}

/** Marks the unsure words among the rows of the picture in front. */
export function markUnsure(pane, model, { rows }) {
  for (const item of pane?.querySelectorAll("li[data-word^=r]") ?? []) {
    const row = rows[Number(item.dataset.word.slice(1))];
    const chance = row ? chanceOfRow(model, row) : null;
    item.classList.toggle("unsure", chance !== null && chance < UNSURE);
    if (row) item.title = chance === null ? row.text : `${row.text}: probability ${chanceText(chance)}`;
  }
}

/** The rows of the picture in front; that of an alignment has whole words. */
function shownRows(model) {
  const { header, kind, state, picture } = model;
  return isAligned(model) ? groupTokens(tokenLists(header, kind, state.read).rows, true) : picture.rows;
}

/** The place of the group that has a token; -1 if none has. */
function groupOf(groups, member) {
  return groups.findIndex((group) => group.members.includes(member));
}

/** `onWord(word)`: the row "r3" of a word was chosen; `onOther(model, at, rank)`: why a token and not its runner-up. */
export function createThoughts({ onWord, onOther }) {
  const heading = el("h3", { text: "What the model thought" });
  const note = el("p", { class: "quiet" });
  const words = el("div", { class: "thought-words", role: "group", "aria-label": "Predicted words" });
  const details = el("div", { class: "thought-details" });
  const alternatives = el("ol", { class: "alternatives" });
  const beam = el("div", {}, el("h3", { text: "What the beam search found" }),
    el("p", { class: "quiet", text: "The score is the log-probability, divided by the length penalty; higher is better." }), alternatives);
  const root = el("section", { class: "thoughts", "aria-label": "What the model thought", hidden: true },
    el("div", { class: "thought-part" }, heading, note, words, details), beam);
  let model = null;
  let groups = [];
  let pointed = -1;
  let said = {}; // the header and the words that the buttons are of

  rovingFocus(words, "button");
  words.addEventListener("click", (event) => {
    const at = Number(event.target.closest("button")?.dataset.at ?? -1);
    if (at < 0) return;
    point(at);
    const row = predictsRows() ? groupOf(shownRows(model), groups[at].members[0]) : -1;
    if (row >= 0) onWord(`r${row}`);
  });

  /** Whether the rows in front stand for the words that are predicted. */
  function predictsRows() {
    return model.kind.rows === "decoder" && !model.state.read;
  }

  function update(next) {
    model = next;
    const { header, state } = model;
    const found = header.alternatives ?? [];
    root.hidden = !header.predictions && found.length < 2;
    root.firstChild.hidden = !header.predictions;
    beam.hidden = found.length < 2;
    alternatives.replaceChildren(...found.map((one) => el("li", {}, el("span", { dir: "auto", text: one.text }),
      el("span", { class: "number", text: one.score.toFixed(3) + (one.is_finished ? "" : " (cut off)") }))));
    if (!header.predictions) return;
    const own = header.target === "output";
    note.textContent = `Below each word its probability, given the source and the words of ${own ? "its own translation" : "the reference"} `
      + `before it. Dotted: unsure, below ${UNSURE}. Choose a word to see its runners-up.`;
    if (said.header !== header || said.words !== state.words) { // else the keyboard's place is kept
      said = { header, words: state.words };
      pointed = -1;
      groups = thoughtWords(header, state.words);
      words.replaceChildren(...groups.map((group, at) => wordButton(group, at)));
    }
    const rows = predictsRows() ? shownRows(model) : [];
    const row = rows[readWord({ rows, columns: [] }, state.word)?.index];
    // A row may have several pieces: the one that was chosen stays.
    const stays = row?.members.includes(groups[pointed]?.members[0]);
    const at = stays ? pointed : row ? groupOf(groups, row.members[0]) : -1;
    point(at < 0 ? leastSure() : at);
  }

  /** The word that is worth a look first. */
  function leastSure() {
    return groups.reduce((least, group, i) => (group.p < groups[least].p ? i : least), 0);
  }

  function point(at) {
    pointed = at;
    [...words.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === at)));
    tabStop([...words.children], words.children[at]);
    details.replaceChildren(...groups[at].members.map((i) => tokenDetails(model.header, i, onOther && explain)));
  }

  /** Shows why a token is there, and not one of its runners-up. */
  async function explain(i, rank, button) {
    const shown = model;
    button.disabled = true;
    const answer = await onOther(shown, i, rank).catch((error) => el("p", { text: error.message }));
    button.disabled = false;
    if (shown !== model || !button.isConnected) return;
    details.querySelector(".why")?.remove();
    details.append(el("div", { class: "why", role: "status" }, answer));
    button.focus();
  }

  return { root, update };
}

function wordButton(group, at) {
  const unsure = group.p < UNSURE;
  const label = `${group.text} ${chanceText(group.p)} is its probability${unsure ? ": unsure" : ""}`; // first what is seen
  return el("button", { type: "button", class: unsure ? "thought unsure" : "thought", "data-at": at,
    style: `--p: ${group.p.toFixed(3)}`, "aria-label": label },
  el("span", { class: "said", dir: "auto" }, ...tokenText(group.text)), " ",
  el("span", { class: "number", text: chanceText(group.p) }));
}

/** One piece and its runners-up, as a table with bars; `explain(i, rank, button)` says why not a runner-up. */
function tokenDetails(header, i, explain) {
  const { p, others } = header.predictions[i];
  const { text } = header.tokens.decoder_output[i];
  const question = (one, rank) => el("button", { type: "button", title: "Why not this?", "aria-label": `Why not ${one}?`,
    onclick: (event) => explain(i, rank, event.currentTarget) }, ...tokenText(one));
  const line = (one, chance, rank) => el("tr", { class: rank < 0 ? "own" : "" },
    el("th", { scope: "row", dir: "auto" }, ...(explain && rank >= 0 ? [question(one, rank)] : tokenText(one))),
    el("td", { class: "number", style: `--p: ${chance.toFixed(3)}`, text: chanceText(chance) }));
  const ranked = [[text, p, -1], ...others.map(([one, chance], rank) => [one, chance, rank])].sort((a, b) => b[1] - a[1]);
  return el("table", {}, el("caption", {}, "in place of ", el("q", { dir: "auto" }, ...tokenText(text))),
    el("tbody", {}, ...ranked.map((one) => line(...one))));
}

/** 0.9996 is not 1.00, and 0.0004 not 0.00: more digits where they matter. */
export function chanceText(p) {
  if (p > 0.995 && p < 1) return "> 0.99";
  if (p < 0.005 && p > 0) return p < 0.00005 ? "< 0.0001" : p.toFixed(4);
  return p.toFixed(2);
}
