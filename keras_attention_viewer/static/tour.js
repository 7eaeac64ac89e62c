// Five captions for the first visit. Whoever ends or skips the tour is not asked again.

import { el } from "./dom.js";

const TOUR_KEY = "keras-attention-viewer-tour";
const CAPTIONS = [
  [".timeline", "Training goes from left to right: each number is a logged step. Move the slider, or play it, and see heads form."],
  [".grid", "Each small picture is a head of the model. A click opens it; ★ is the head that aligns words best."],
  [".stage", "Words on the left read words on the right. Point at a word to see its lines only; a click keeps it."],
  [".menus", "The same numbers as lines, as a matrix, or as an alignment; as weights, or as what each word contributed."],
  [".thoughts", "What the model thought of each word: how sure it was, and what it would have said instead."],
];

/** The captions, in a bar; `start` begins with the first. */
export function createTour(root) {
  const text = el("p", { role: "status" });
  const count = el("span", { class: "quiet number" });
  const next = el("button", { type: "button", class: "toggle", text: "Next", onclick: () => show(at + 1) });
  const skip = el("button", { type: "button", text: "Skip the tour", onclick: end });
  let before = null; // where the keyboard was
  const bar = el("aside", { class: "tour panel", hidden: true, "aria-label": "Tour" }, text, count, next, skip);
  let at = 0;
  let captions = [];

  function show(place) {
    mark(null);
    if (place >= captions.length) {
      end();
      return;
    }
    at = place;
    const [selector, caption] = captions[at];
    text.textContent = caption;
    count.textContent = `${at + 1} of ${captions.length}`;
    const last = at === captions.length - 1;
    next.textContent = last ? "Done" : "Next";
    skip.hidden = last;
    bar.hidden = false;
    const target = root().querySelector(selector);
    mark(target);
    (target.querySelector(".best") ?? target).scrollIntoView({ block: "nearest" });
  }

  function mark(target) {
    root().querySelector(".toured")?.classList.remove("toured");
    target?.classList.add("toured");
  }

  function start() {
    before = document.activeElement;
    // What this page does not have is passed over.
    captions = CAPTIONS.filter(([selector]) => root().querySelector(selector)?.closest("[hidden]") === null);
    show(0);
  }

  function end() {
    mark(null);
    if (bar.contains(document.activeElement)) before.focus();
    bar.hidden = true;
    remember();
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && !bar.hidden && end());

  return { root: bar, start: () => { start(); next.focus({ preventScroll: true }); }, startOnce: () => { if (isNew()) start(); } };
}

/** Whether nobody has ended the tour here; where that cannot be remembered, nobody is asked. */
function isNew() {
  try {
    return localStorage.getItem(TOUR_KEY) === null;
  } catch {
    return false;
  }
}

function remember() {
  try {
    localStorage.setItem(TOUR_KEY, "done");
  } catch {
    // nothing is kept in this frame
  }
}
