// The keyboard: one letter for what is done often. Tab and the arrow keys reach everything else.

export const KEYS_HELP = "Keys: [ ] step · P play · L ⇧L layer · H ⇧H head · A all heads · 1 2 3 view · W words · "
  + "C content · K contribution · R row · / find · Esc no word";

/** Listens for the viewer's keys; none of them while one types or chooses in a menu. */
export function listenForKeys(viewer) {
  document.addEventListener("keydown", (event) => {
    // Many keyboards have brackets only with Option, or with AltGr, which is Control and Alt.
    const other = event.metaKey || event.ctrlKey || event.altKey;
    if (!viewer.model || (other && !("[]".includes(event.key) && event.altKey && !event.metaKey))) return;
    if (event.target.closest("select, input:not([type=range]), textarea")) return;
    const action = actionOf(event, viewer);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionOf(event, viewer) {
  const { model } = viewer;
  const { state, place, kind } = model;
  const step = (by) => {
    const at = Math.min(place.steps.length - 1, Math.max(0, place.steps.indexOf(place.step) + by));
    viewer.set({ step: place.steps[at] }, false);
  };
  const turn = (n, count) => (n + (event.shiftKey ? count - 1 : 1)) % count;
  const keptHeads = model.heads.length === kind.heads ? model.heads : model.heads.slice(0, 1);
  const actions = {
    "[": () => step(-1),
    "]": () => step(1),
    p: () => viewer.parts.slider.toggle(),
    l: () => viewer.set({ layer: turn(model.layer, kind.layers), heads: keptHeads }),
    h: () => viewer.set({ layer: model.layer, heads: [turn(keptHeads.length > 1 ? -1 : keptHeads[0], kind.heads)] }),
    a: () => viewer.set({ layer: model.layer, heads: Array.from({ length: kind.heads }, (_, head) => head) }),
    1: () => viewer.openView("lines"),
    2: () => viewer.openView("matrix"),
    3: () => viewer.openView("alignment"),
    w: () => viewer.set({ words: !state.words }),
    c: () => viewer.set({ content: !state.content }),
    k: () => viewer.set({ contribution: !state.contribution && model.known }),
    r: () => viewer.set({ read: !state.read }),
    "/": () => viewer.parts.sieve.focus(),
    escape: () => viewer.set({ word: "" }),
  };
  return actions[event.key.toLowerCase()];
}
