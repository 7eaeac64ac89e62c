// The Attention tab: TensorBoard calls `render`.

import { createTensorBoardHost } from "./host_tensorboard.js";
import { createHttpSource } from "./source_http.js";
import { mount } from "./viewer.js";

export async function render() {
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("./viewer.css", import.meta.url).href;
  const styled = new Promise((done) => {
    style.onload = done;
    style.onerror = done;
  });
  document.head.append(style);
  await styled;
  await mount(document.body, createHttpSource(new URL(".", import.meta.url).href.replace(/\/$/, "")),
    createTensorBoardHost());
}
