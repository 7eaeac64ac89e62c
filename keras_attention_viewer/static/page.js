// The HTML file: its data stands in the page, and it starts by itself.

import { createPageHost } from "./host_page.js";
import { createEmbeddedSource } from "./source_embedded.js";
import { mount } from "./viewer.js";

function startPage() {
  const data = JSON.parse(document.getElementById("attention-data").textContent);
  return mount(document.getElementById("attention"), createEmbeddedSource(data), createPageHost());
}

startPage();
