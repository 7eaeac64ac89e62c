// The words of the field, each explained where it stands: for the mouse, the finger and the keyboard.

import { el } from "./dom.js";

export const TERMS = {
  layer: "The model's blocks stand one after another; each is a layer and reads what the one before it wrote.",
  head: "A layer reads with several heads at once. Each head has weights of its own, so each may look at something else.",
  encoder: "In the encoder each source word reads all source words.",
  decoder: "In the decoder's self-attention each position reads the words of the translation that were there before it.",
  cross: "In cross-attention the decoder reads the source while it writes the translation.",
  weight: "The attention weight: how much of its reading a word spends on another one. The weights of a word sum to 1.",
  contribution: "Weight times the norm of what the head makes of the word (its transformed value), as a share of the "
    + "row. A large weight on a short vector contributes little (Kobayashi et al. 2020).",
  loss: "How surprised the model is by the right translations, in nats per word piece; lower is better.",
  bleu: "How much the model's translations have in common with the references, 0 to 100; higher is better.",
  perplexity: "Among how many words the model hesitates, on average; lower is better.",
};

/** What a role says; the measures behind it are means over all logged sentences. */
export const ROLE_TERMS = {
  sink: "Half of the weight or more lies on start and end tokens: often a head that has nothing to say.",
  punctuation: "Half of the weight or more lies on punctuation.",
  "previous token": "In nine of ten rows the largest weight is on the token before.",
  "next token": "In nine of ten rows the largest weight is on the token after.",
  itself: "In nine of ten rows the largest weight is on the same token.",
  alignment: "The head that aligns best reads, for a word, the word that it translates.",
  diagonal: "Half of the weight or more lies near the same place of the sentence.",
  "rare words": "In half of the rows or more the largest weight is on the rarest word.",
  broad: "The weights are spread almost evenly.",
};

/** A word with its explanation. */
export function term(text, explanation, className = "term") {
  return el("button", { type: "button", class: className, text, "data-explain": explanation });
}

/** Shows the explanation of what is pointed at, touched or focused, in one box below or above it. */
export function explainOnDemand(root) {
  const tip = el("div", { class: "tip", role: "tooltip", id: "attention-tip", hidden: true });
  root.append(tip);
  let shown = null;

  function show(node) {
    if (node === shown) return;
    hide();
    const text = node?.dataset.explain ?? node?.title;
    if (!text) return;
    shown = node;
    tip.textContent = text;
    tip.hidden = false;
    node.setAttribute("aria-describedby", tip.id);
    const [box, own] = [node.getBoundingClientRect(), tip.getBoundingClientRect()];
    const left = Math.max(8, Math.min(box.left, window.innerWidth - own.width - 8));
    const below = box.bottom + 6;
    const top = below + own.height < window.innerHeight ? below : Math.max(8, box.top - own.height - 6);
    Object.assign(tip.style, { left: `${left}px`, top: `${top}px` });
  }

  function hide() {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  }

  const explained = (event) => event.target.closest?.("[data-explain]");
  root.addEventListener("mouseover", (event) => show(explained(event)));
  root.addEventListener("mouseleave", hide);
  root.addEventListener("click", (event) => explained(event) && show(explained(event)));
  // A mouse sees a button's title by itself; the keyboard does not.
  root.addEventListener("focusin", (event) => {
    const titled = event.target.matches(":focus-visible") ? event.target.closest("button[title]:not(.thumbs *)") : null;
    show(explained(event) ?? titled);
  });
  root.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
