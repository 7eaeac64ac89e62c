// The Attention tab: TensorBoard calls `render`.

import { createTensorBoardHost } from "./host_tensorboard.js";
import { createHttpSource } from "./source_http.js";

export async function render() {
  const here = new URL(".", import.meta.url).href.replace(/\/$/, "");
  const source = createHttpSource(here);
  source.prepare(); // the server works while the modules load
  const [{ mount }] = await Promise.all([import("./viewer.js"), loadStyle(`${here}/viewer.css`)]);
  document.documentElement.lang = "en";
  document.title = "Attention";
  const main = document.createElement("main");
  main.id = "attention";
  document.body.replaceChildren(main);
  await mount(main, source, createTensorBoardHost());
}

function loadStyle(href) {
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = href;
  document.head.append(style);
  return new Promise((done) => {
    style.onload = done;
    style.onerror = done;
  });
}
