// What is wrong with the records, or why there is nothing to see.

import { el } from "./dom.js";
import { runTitle } from "./model.js";

const NOTHING_LOGGED = "No attention has been logged here yet; the callback AttentionLog writes it.";

export function createMessages() {
  const root = el("div", { class: "messages", role: "status" });

  /** Says what is wrong with the run that is shown, or why there is none; that of other runs is folded away. */
  function say(runs, texts, shown = null) {
    const nothing = !shown && !texts.length ? [NOTHING_LOGGED] : [];
    const ofRun = (run) => (run.problems ?? []).map((text) => `${runTitle(run)}: ${text}`);
    const others = runs.filter((run) => run !== shown).flatMap(ofRun);
    const lines = (all) => all.map((text) => el("p", { text, dir: "auto" }));
    root.replaceChildren(...lines([...(shown ? ofRun(shown) : []), ...texts, ...nothing]),
      ...(others.length ? [el("details", { open: !shown },
        el("summary", { text: `Messages of other runs: ${others.length}` }), ...lines(others))] : []));
  }

  return { root, say };
}
