// The page stands alone: one HTML file, also inside a notebook's frame.

import { readQuery, writeQuery } from "./state.js";

/** Whether what lies behind our frame, as in a notebook, is dark; null where there is none, or it may not be looked at. */
function isDarkAround() {
  try {
    for (let node = window.frameElement; node; node = node.parentElement) {
      const [red, green, blue, opacity = 1] = getComputedStyle(node).backgroundColor.match(/[\d.]+/g).map(Number);
      if (opacity > 0.5) return red + green + blue < 382;
    }
  } catch {
    // of another origin
  }
  return null;
}

export function createPageHost() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  return {
    getState: () => readQuery(location.hash.slice(1)),
    setState(flat, push) {
      const link = `#${writeQuery(flat)}`;
      try {
        if (push) history.pushState(null, "", link);
        else history.replaceState(null, "", link);
      } catch {
        // a notebook's frame has no address
      }
    },
    onState: (callback) => {
      window.addEventListener("popstate", () => callback(readQuery(location.hash.slice(1))));
    },
    link: () => (location.protocol === "about:" ? "" : location.href), // a notebook's frame has no address
    theme: () => (isDarkAround() ?? dark.matches ? "dark" : "light"),
    onTheme(callback) {
      dark.addEventListener("change", callback);
      if (isDarkAround() === null) return;
      const { documentElement, body } = window.parent.document; // notebooks name their theme there
      for (const node of [documentElement, body]) new MutationObserver(callback).observe(node, { attributes: true });
    },
    onReload: () => {},
  };
}
