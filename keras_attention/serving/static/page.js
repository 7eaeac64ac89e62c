// One types a sentence, how its translation begins, or switches heads off, and sees translation and attention at once.
// Texts are only ever set as text.

import { createPageHost } from "../viewer/host_page.js";
import { el } from "../viewer/dom.js";
import { createEmbeddedSource } from "../viewer/source_embedded.js";
import { mount } from "../viewer/viewer.js";
import { createSwitches } from "./switches.js";
import { createMasks, explainChoice } from "./words.js";

const PAUSE = 60; // milliseconds without a key before the server is asked
const ALTERNATIVES = 3;
const $ = (id) => document.getElementById(id);

let languages = [];
let alternatives = 0; // a narrow beam has fewer
let timer = 0;
let asking = new AbortController(); // for the newest text
let viewer = null; // what becomes the viewer's function that reads again, once it is mounted
let shown = null; // what the viewer reads
const given = new URLSearchParams(location.search);
const switches = createSwitches({ names: (given.get("heads_off") ?? "").split(" ").filter(Boolean), onChange: () => translate() });
const masks = createMasks({ text: given.get("masked") ?? "", onChange: () => translate() });

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

/** What is asked for, as it stands on the page. */
function asked() {
  return { q: oneLine("q"), source: $("source").value, target: $("target").value, prefix: oneLine("prefix"),
    heads_off: switches.text(), masked: masks.text() };
}

function oneLine(id) {
  return $(id).value.replace(/\s+/g, " ").trim();
}

/** Keeps what is asked for in the address, so that a link gives the same page again. */
function keepInAddress(about) {
  const kept = Object.entries(about).filter(([, text]) => text);
  try {
    history.replaceState(history.state, "", `?${new URLSearchParams(kept)}${location.hash}`);
  } catch { /* A browser that allows so many changes in so many seconds: the next one says it all. */ }
}

/** Asks for what the page says now, and shows it, unless it has changed meanwhile; says what went wrong. */
async function translate() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const about = asked();
  keepInAddress(about);
  if (!about.q) {
    showTranslation({ translatedText: "" });
    $("attention").hidden = true;
    say("");
    return;
  }
  for (const id of ["translation", "attention"]) $(id).classList.add("old");
  try {
    if (!viewer && !about.prefix && !about.heads_off && !about.masked) {
      showTranslation(await ask("translate", { ...about, alternatives }, signal));
      say("The first time, the model that shows the attention may have to be loaded.");
    }
    const { attention, problem = "", ...answer } = await ask("try", { ...about, alternatives }, signal);
    showTranslation(answer);
    $("attention").hidden = !attention;
    if (attention) await showAttention(attention);
    if (!signal.aborted) say(problem, true);
  } catch (error) {
    if (!signal.aborted) say(error.message, true);
  }
}

function showTranslation({ translatedText, scores = [], alternatives: others = [], whole = null }) {
  $("translation").textContent = translatedText;
  $("translation").classList.remove("old");
  const all = others.length || whole ? [translatedText, ...others] : [];
  const line = (name, text, score) => el(name, {}, el("span", { text }),
    el("span", { class: "score", title: "score", text: score.toFixed(2) }));
  $("alternatives").replaceChildren(...all.map((text, rank) => line("li", text, scores[rank])));
  $("whole").hidden = !whole;
  $("whole").replaceChildren(...(whole ? ["With all heads and words: ", line("span", whole.translatedText, whole.score)] : []));
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
  let reload = null;
  const host = {
    ...createPageHost(),
    onReload: (callback) => { reload = callback; },
    tools: el("div", { class: "bar" }, switches.button, masks.button),
    onModel: (model) => {
      for (const part of [switches, masks]) part.update(model, $("attention"));
    },
    onOther: (model, at, rank) => explainChoice((contrast) => ask("try", { ...asked(), contrast }), model, at, rank),
  };
  viewer = mount($("attention"), newest, host).then(() => reload);
  await viewer;
}

function fill(select, codes, wanted) {
  const names = Object.fromEntries(languages.map((one) => [one.code, one.name]));
  select.replaceChildren(...codes.map((code) => el("option", { value: code, text: names[code] ?? code })));
  select.value = codes.includes(wanted) ? wanted : codes[0];
}

function fillTargets(wanted = $("target").value) {
  const { targets } = languages.find((one) => one.code === $("source").value);
  fill($("target"), targets, wanted);
}

async function start() {
  try {
    languages = await ask("languages");
    alternatives = Math.min(ALTERNATIVES, (await ask("frontend/settings")).alternativesLimit);
  } catch (error) {
    say(error.message, true);
    return;
  }
  fill($("source"), languages.filter((one) => one.targets.length).map((one) => one.code), given.get("source"));
  fillTargets(given.get("target"));
  const changeModel = () => { switches.clear(); masks.clear(); translate(); };
  $("source").addEventListener("change", () => { fillTargets(); changeModel(); });
  $("target").addEventListener("change", changeModel);
  for (const id of ["q", "prefix"]) {
    $(id).value = given.get(id) || $(id).value;
    $(id).addEventListener("input", () => {
      if (id === "q") masks.clear();
      clearTimeout(timer);
      timer = setTimeout(translate, PAUSE);
    });
  }
  const narrow = matchMedia("(max-width: 700px)"); // the picture would be below the screen
  const fold = () => { $("others").open = !narrow.matches; };
  fold();
  narrow.addEventListener("change", fold);
  $("off").replaceChildren(switches.list, masks.list);
  addEventListener("popstate", () => keepInAddress(asked())); // Back changes the picture, not the text.
  if ($("q").value) translate(); // of the address, or kept by the browser from before
}

start();
