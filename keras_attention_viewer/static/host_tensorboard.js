// TensorBoard's tab: a frame of the same origin. Its page around us tells theme and address; both are
// reached directly, as TensorBoard has no message for them, and done without where that fails.

import { readQuery, writeQuery } from "./state.js";

const HASH_PREFIX = "p.attention.";
const RELOAD_EVERY = 10_000; // milliseconds

export function createTensorBoardHost() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const around = pageAround();
  return {
    getState: () => (around ? readQuery(around.location.hash.slice(1), HASH_PREFIX) : {}),
    setState(flat, push) {
      // Only while our tab is the one in front: the address belongs to the others, too.
      if (!around || !/^#attention\b/.test(around.location.hash)) return;
      const others = around.location.hash.slice(1).split("&").filter((part) => !part.startsWith(HASH_PREFIX));
      const own = writeQuery(flat, HASH_PREFIX);
      const address = `#${[...others, own].filter(Boolean).join("&")}`;
      if (push) around.history.pushState(around.history.state, "", address);
      else around.history.replaceState(around.history.state, "", address);
    },
    onState(callback) {
      // Also a place without a state of ours: the one where the tab was opened.
      around?.addEventListener("popstate", () => {
        if (/^#attention\b/.test(around.location.hash)) callback(this.getState());
      });
    },
    link: () => (around ?? window).location.href,
    theme: () => ((around ? around.document.body.classList.contains("dark-mode") : dark.matches) ? "dark" : "light"),
    onTheme(callback) {
      if (around) {
        const watch = new MutationObserver(callback);
        watch.observe(around.document.body, { attributes: true, attributeFilter: ["class"] });
      } else dark.addEventListener("change", callback);
    },
    onReload(callback) {
      listenForReloads(callback);
      // TensorBoard itself reloads only if it is asked to; a tab that is not in front has no height.
      setInterval(() => { if (!document.hidden && window.innerHeight > 0) callback(); }, RELOAD_EVERY);
    },
  };
}

/** TensorBoard's window, or null where the browser or a frame in between forbids it. */
function pageAround() {
  try {
    return window.parent !== window && window.parent.document.body ? window.parent : null;
  } catch {
    return null;
  }
}

/** TensorBoard's messages to plugins: JSON over a port that the plugin sends it. */
function listenForReloads(callback) {
  const channel = new MessageChannel();
  channel.port1.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type !== "experimental.DataReloaded" || message.isReply) return;
    channel.port1.postMessage(JSON.stringify({ ...message, payload: null, error: null, isReply: true }));
    callback();
  };
  window.parent.postMessage("experimental.bootstrap", "*", [channel.port2]);
}
