// Elements of the page. Text is only ever set as text, never parsed as HTML.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/** Makes an HTML element: `text` becomes its text, `on...` listeners, everything else attributes. */
export function el(name, attributes = {}, ...children) {
  return dressed(document.createElement(name), attributes, children);
}

/** Makes an SVG element. */
export function svgEl(name, attributes = {}, ...children) {
  return dressed(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

function dressed(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A token's text, exactly; the mark that begins a word in SentencePiece is faint. */
export function tokenText(text) {
  if (!text.startsWith("▁")) return [text];
  return [el("span", { class: "mark", text: "▁" }), text.slice(1)];
}

/** Fills a select with [value, text] pairs; leaves it alone where nothing changed. */
export function fillSelect(select, options, value) {
  const key = JSON.stringify(options);
  if (select.optionKey !== key) {
    select.optionKey = key;
    select.replaceChildren(...options.map(([v, text]) => el("option", { value: v, text, dir: "auto" })));
  }
  select.value = value;
}

/** A labelled select. */
export function selectField(label, onChange, attributes = {}) {
  const select = el("select", { "aria-label": label, ...attributes, onchange: () => onChange(select.value) });
  return { root: el("label", { class: "field" }, el("span", { text: label }), select), select };
}

/** A button that is pressed or not. */
export function toggleButton(text, title, onPress) {
  const button = el("button", { type: "button", class: "toggle", text, title });
  button.addEventListener("click", () => onPress(button.getAttribute("aria-pressed") !== "true"));
  return button;
}

/** A row of buttons of which one is pressed. */
export function segments(label, onChoose) {
  const root = el("div", { class: "segments", role: "group", "aria-label": label });
  rovingFocus(root, "button");
  let key = "";
  return {
    root,
    update(options, value) {
      const next = JSON.stringify(options);
      if (next !== key) {
        key = next;
        root.replaceChildren(...options.map(([v, text]) =>
          el("button", { type: "button", "data-value": v, text, onclick: () => onChoose(v) })));
      }
      const buttons = [...root.children];
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
      tabStop(buttons, buttons.find((button) => button.dataset.value === value));
    },
  };
}

/** Lets the arrow keys move between the children of a list that is one stop of the tab key. */
export function rovingFocus(root, selector, columns = () => 1) {
  root.addEventListener("keydown", (event) => {
    const items = [...root.querySelectorAll(selector)];
    const at = items.indexOf(event.target.closest(selector));
    const moves = { ArrowDown: columns(), ArrowUp: -columns(), ArrowRight: 1, ArrowLeft: -1,
      Home: -at, End: items.length - 1 - at };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const next = items[Math.min(items.length - 1, Math.max(0, at + moves[event.key]))];
    next.focus();
    tabStop(items, next);
  });
}

/** Lets the tab key stop at one of some elements only: that which has the focus, or else `item`. */
export function tabStop(items, item) {
  const stop = items.find((one) => one === document.activeElement) ?? item;
  for (const one of items) one.tabIndex = one === stop ? 0 : -1;
}

/** Makes a list of words one stop of the tab key; `choose(word)`: one was clicked, or chosen by a key. */
export function wordChoice(list, choose) {
  rovingFocus(list, "li");
  const chosen = (event) => {
    const word = event.target.closest("li")?.dataset.word;
    if (word) choose(word);
  };
  list.addEventListener("click", chosen);
  list.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    chosen(event);
  });
}

/** Hands a file to the user. */
export function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
