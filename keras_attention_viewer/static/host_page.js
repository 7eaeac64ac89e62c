// The page stands alone: one HTML file, also inside a notebook's frame.

import { readQuery, writeQuery } from "./state.js";

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
    theme: () => (dark.matches ? "dark" : "light"),
    onTheme: (callback) => dark.addEventListener("change", callback),
    onReload: () => {},
  };
}
