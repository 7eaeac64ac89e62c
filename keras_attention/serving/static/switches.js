// Heads that are switched off: a button beside the heads of the picture, and a list that puts them on again.

import { el, toggleButton } from "../viewer/dom.js";
import { kindName } from "../viewer/measures.js";

/** A head's name on the way to the server: kind, layer and head, counted from 1. */
function nameOf(kind, layer, head) {
  return `${kind}.${layer + 1}.${head + 1}`;
}

/** `names`: what is off at first; `onChange()`: others are now. */
export function createSwitches({ names = [], onChange }) {
  let off = new Set(names);
  let model = null; // what the viewer shows
  const button = toggleButton("Switch off",
    "The chosen heads still look, but what they read is not passed on: see how the translation changes", (on) => {
      const chosen = chosenNames();
      change([...off].filter((name) => !chosen.includes(name)).concat(on ? chosen : []));
    });
  const list = el("div", { class: "off-heads", role: "group", "aria-label": "Heads that are switched off", hidden: true });

  function chosenNames() {
    return model.heads.map((head) => nameOf(model.kind.name, model.layer, head));
  }

  function change(next) {
    off = new Set(next);
    show();
    onChange();
  }

  function show() {
    if (model) {
      const areOff = chosenNames().every((name) => off.has(name));
      button.setAttribute("aria-pressed", String(areOff));
      button.textContent = areOff ? "Switched off" : "Switch off";
    }
    list.hidden = !off.size;
    list.replaceChildren("Off: ", ...[...off].map((name) => chip(name)),
      el("button", { type: "button", text: "All on", onclick: () => change([]) }));
  }

  function chip(name) {
    const [kind, ...place] = name.split(".");
    const text = `${kindName(kind)} ${place.join(".")}`;
    return el("button", { type: "button", "aria-label": `Switch on ${text}`, title: "Switch on", text: `${text} ×`,
      onclick: () => change([...off].filter((one) => one !== name)) });
  }

  show();
  return {
    button,
    list,
    /** For the server. */
    text: () => [...off].join(" "),
    /** Other models have other heads. */
    clear: () => { off = new Set(); show(); },
    /** The viewer shows something else; `root` is where its thumbnails are. */
    update(next, root) {
      model = next;
      show();
      for (const thumb of root.querySelectorAll(".thumbs button")) {
        const isOff = off.has(nameOf(model.kind.name, Number(thumb.dataset.layer), Number(thumb.dataset.head)));
        thumb.classList.toggle("off", isOff);
        if (isOff) thumb.setAttribute("aria-label", `${thumb.title}, switched off`);
      }
    },
  };
}
