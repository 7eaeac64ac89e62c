// One types a sentence, and sees its translation at once and its attention when that is there.
// Texts are only ever set as text.

import { createPageHost } from "../viewer/host_page.js";
import { el } from "../viewer/dom.js";
import { createEmbeddedSource } from "../viewer/source_embedded.js";
import { mount } from "../viewer/viewer.js";

const PAUSE = 250; // milliseconds without a key before the server is asked
const ALTERNATIVES = 3;
const $ = (id) => document.getElementById(id);

let languages = [];
let alternatives = 0; // a narrow beam has fewer
let timer = 0;
let asked = new AbortController(); // of the newest text
let viewer = null; // what becomes the viewer's function that reads again, once it is mounted
let shown = null; // what the viewer reads

/** The answer to a request; throws the server's own message. */
async function ask(path, body, signal) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, { ...options, signal });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answers ${response.status}.`);
  return answer;
}

function say(text, isError = false) {
  $("message").textContent = text;
  $("message").classList.toggle("error", isError);
}

/** Shows what a promise gives, unless a newer text was typed meanwhile; says what went wrong. */
async function translate() {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  const q = $("text").value.replace(/\s+/g, " ").trim();
  const about = { q, source: $("source").value, target: $("target").value };
  if (!q) {
    showTranslation({ translatedText: "" });
    $("attention").hidden = true;
    say("");
    return;
  }
  for (const id of ["translation", "attention"]) $(id).classList.add("old");
  try {
    showTranslation(await ask("translate", { ...about, alternatives }, signal));
    say(viewer ? "" : "The first time, the model that shows the attention must be loaded.");
    await showAttention(await ask("attention", about, signal));
    say("");
  } catch (error) {
    if (!signal.aborted) say(error.message, true);
  }
}

function showTranslation({ translatedText, scores = [], alternatives: others = [] }) {
  $("translation").textContent = translatedText;
  $("translation").classList.remove("old");
  const all = others.length ? [translatedText, ...others] : [];
  $("alternatives").replaceChildren(...all.map((text, rank) =>
    el("li", {}, el("span", { text }), el("span", { class: "score", title: "score", text: scores[rank].toFixed(2) }))));
}

async function showAttention(data) {
  shown = createEmbeddedSource(data);
  $("attention").hidden = false;
  $("attention").classList.remove("old");
  if (viewer) {
    await (await viewer)();
    return;
  }
  const newest = {
    index: () => shown.index(),
    header: (...place) => shown.header(...place),
    weights: (...place) => shown.weights(...place),
  };
  const host = createPageHost();
  let reload = null;
  viewer = mount($("attention"), newest, { ...host, onReload: (callback) => { reload = callback; } }).then(() => reload);
  await viewer;
}

function fill(select, codes, wanted) {
  const names = Object.fromEntries(languages.map((one) => [one.code, one.name]));
  select.replaceChildren(...codes.map((code) => el("option", { value: code, text: names[code] ?? code })));
  select.value = codes.includes(wanted) ? wanted : codes[0];
}

function fillTargets() {
  const { targets } = languages.find((one) => one.code === $("source").value);
  fill($("target"), targets, $("target").value);
}

async function start() {
  try {
    languages = await ask("languages");
    alternatives = Math.min(ALTERNATIVES, (await ask("frontend/settings")).alternativesLimit);
  } catch (error) {
    say(error.message, true);
    return;
  }
  fill($("source"), languages.filter((one) => one.targets.length).map((one) => one.code));
  fillTargets();
  $("source").addEventListener("change", () => { fillTargets(); translate(); });
  $("target").addEventListener("change", translate);
  $("text").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(translate, PAUSE);
  });
  if ($("text").value) translate(); // kept by the browser from before
}

start();
