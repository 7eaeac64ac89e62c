"""How long does a reader of the attention viewer wait, and what does a logged entry cost?

    python benchmarks/viewer.py     # in Chromium; apt-get install chromium, pip install playwright

Measured are, on a machine that does nothing else:

1. `AttentionLog` at base size with sentences of some 30 tokens: processor time and size of an entry,
2. in TensorBoard, with fifty such entries: from the click on the tab to the first weight on the screen,
3. a page with a sentence of 400 tokens: the longest task of the browser while the mouse crosses all of them,
4. `keras-attention attention demo_en_de --serve`: from a changed word to the new picture.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

START_SECONDS = 300
ENTRIES, LONG = 50, 400
VIEWS = (
    "view=lines&heads=1",
    "view=lines&heads=1,2,3,4,5,6,7,8",
    "view=lines&heads=1&least=0.05",
    "view=matrix&heads=1",
)
VERBS = (("sleeps", "small"), ("sings", "old"), ("waits", "big"))
NOUNS = ("dog", "cat", "woman", "man", "child", "girl", "boy", "teacher")
NO_TOUR = "try { localStorage.setItem('keras-attention-viewer-tour', 'done') } catch {}"
CLICKED = "document.addEventListener('click', () => { window.clicked = now() }, true)"
NOW = "window.now = () => performance.timeOrigin + performance.now()"
# Resolves when a picture of weights has its first point that is not transparent.
PAINTED = """() => new Promise((done) => {
  const look = () => {
    for (const canvas of document.querySelectorAll(".wires canvas")) {
      if (!canvas.width || !canvas.height) continue;
      const points = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      for (let i = 3; i < points.length; i += 4) {
        if (points[i]) return done(performance.timeOrigin + performance.now());
      }
    }
    setTimeout(look, 10);
  };
  look();
})"""
WATCH_TASKS = """() => {
  window.tasks = [];
  const note = (list) => { for (const entry of list.getEntries()) window.tasks.push(entry.duration); };
  new PerformanceObserver(note).observe({ type: "longtask", buffered: false });
}"""
MIDDLES = """(selector) => [...document.querySelectorAll(selector)].map((node) => {
  const box = node.getBoundingClientRect();
  return [box.right - 8, box.top + box.height / 2];
})"""
CHANGE = """async (text) => {
  const field = document.getElementById("q"), word = text.split(" ")[1], begun = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input"));
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (;;) {
    await frame();
    const shown = [...document.querySelectorAll("#attention .columns li")];
    const words = shown.map((item) => item.textContent.replaceAll("\\u2581", ""));
    if (words.includes(word) && !document.querySelector("#translation.old")) break;
    if (performance.now() - begun > 60000) throw Error(words.join(" "));
  }
  await frame();
  return performance.now() - begun;
}"""


def main() -> int:
    """Measure and print."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory(prefix="viewer-") as folder, browser() as chromium:
        for measure in (entries, first_weight, mouse, changed_word):
            found = measure(Path(folder), chromium)
            print(*(f"{name}: {value}" for name, value in found.items()), sep="\n")
            print(f"load average: {os.getloadavg()[0]:.2f}", flush=True)
    return 0


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium, and end it."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("Chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


@contextlib.contextmanager
def program(command: list[str], ready: str, log: Path) -> Iterator[str]:
    """Start a program, wait for its address, which this expression finds in what it prints, and end it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + START_SECONDS
        while not (match := re.search(ready, log.read_text())):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command} does not start: {log.read_text()}")
            time.sleep(0.1)
        yield match[1]
    finally:
        process.terminate()
        process.wait(timeout=60)


def entries(folder: Path, chromium: Any) -> dict[str, Any]:
    """Log a base model of random weights, with the default number of pairs."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    from keras_attention import Tokenizer, Transformer, load_corpus
    from keras_attention.callbacks import AttentionLog
    from keras_attention.recipes.attention import MEASURED_TOKENS, SHOWN
    from keras_attention.visualization import SummaryWriter

    corpus = load_corpus("demo")
    sources, targets = [*corpus.train.sources()][:2000], [*corpus.train.targets()][:2000]
    tokenizer = Tokenizer.train([*sources, *targets], vocabulary_size=2000)
    # Three sentences of the demo are one of the size of news. There are as many pairs as in a run.
    pairs, tokens = [], 0
    for i in itertools.count(step=3):
        if tokens >= MEASURED_TOKENS and len(pairs) >= SHOWN:
            break
        pairs.append((" ".join(sources[i : i + 3]), " ".join(targets[i : i + 3])))
        tokens += len(tokenizer.encode(pairs[-1][0]))
    model = Transformer.base(vocabulary_size=2000)
    model.compile("sgd")
    logs, seconds = folder / "logs", []
    with SummaryWriter(logs) as writer:
        log = AttentionLog(writer, tokenizer, pairs, shown=SHOWN)
        log.set_model(model)
        for step in range(ENTRIES):
            model.optimizer.iterations.assign(step)
            begun = time.process_time()
            log.on_train_begin()
            seconds.append(time.process_time() - begun)
    written = sum(file.stat().st_size for file in logs.glob("*"))
    return {
        "entry, processor seconds": round(statistics.median(seconds), 2),
        "entry, longest": round(max(seconds), 2),
        "entry, megabytes": round(written / ENTRIES / 1e6, 2),
    }


def first_weight(folder: Path, chromium: Any) -> dict[str, Any]:
    """Measure the time from the click on TensorBoard's tab to the first weight, in three fresh browsers."""
    command = [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "0"]
    seconds = []
    started = program([*command, "--logdir", str(folder)], r"at (http://\S+)", folder / "tb.log")
    with started as address:
        time.sleep(20)  # TensorBoard reads the log behind the page.
        for _ in range(3):
            page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
            page.goto(address)
            tab = page.get_by_text("Attention", exact=True).first
            tab.wait_for(timeout=60_000)
            page.wait_for_timeout(4000)
            page.evaluate(f"() => {{ {NOW}; {CLICKED} }}")
            tab.click()
            page.wait_for_selector("iframe", timeout=60_000)
            frame = next(one for one in page.frames if one != page.main_frame)
            painted = frame.evaluate(PAINTED)
            seconds.append((painted - page.evaluate("window.clicked")) / 1000)
            page.context.close()
    return {"click to first weight, seconds": [round(value, 2) for value in seconds]}


def mouse(folder: Path, chromium: Any) -> dict[str, Any]:
    """Measure the longest task while the mouse crosses 400 tokens of a page."""
    from keras_attention_viewer import describe_tokens, make_entry, measured, save_html

    weights = np.random.default_rng(26).gamma(0.1, size=(8, LONG, LONG)) + 1e-9
    weights /= weights.sum(-1, keepdims=True)
    names = [f"\u2581w{i}" for i in range(LONG - 1)] + ["</s>"]
    tokens = describe_tokens(names, [LONG - 1])
    text = " ".join(f"w{i}" for i in range(LONG - 1))
    entry = make_entry(0, text, text, tokens, tokens, tokens, {"encoder": [weights]})
    page_file = folder / "long.html"
    save_html(page_file, measured([entry]))
    longest = {}
    for view in VIEWS:
        context = chromium.new_context(viewport={"width": 1440, "height": 7400})
        context.add_init_script(NO_TOUR)
        page = context.new_page()
        page.goto(f"file://{page_file}#words=0&layer=1&{view}")
        page.locator(".picture .title").wait_for()
        page.wait_for_timeout(4000)
        is_matrix = "matrix" in view
        middles = page.evaluate(MIDDLES, ".matrix-rows li" if is_matrix else ".pane .tokens li")
        page.evaluate(WATCH_TASKS)
        for x, y in middles[:LONG]:
            page.mouse.move(x + (40 if is_matrix else 0), y)
        page.wait_for_timeout(500)
        longest[view] = round(max(page.evaluate("window.tasks"), default=0))
        context.close()
    return {"longest task, milliseconds": longest}


def changed_word(folder: Path, chromium: Any) -> dict[str, Any]:
    """Measure the time from a changed word to the new picture, 24 times."""
    command = [sys.executable, "-m", "keras_attention_light", "attention", "demo_en_de"]
    command += ["The dog sleeps in the small house.", "--serve", "--port", "0"]
    with program(command, r"ready on (\S+)", folder / "serve.log") as address:
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        context.add_init_script(NO_TOUR)
        page = context.new_page()
        page.goto(address)
        page.locator(".columns li").first.wait_for(timeout=1000 * START_SECONDS)
        for word in ("horse", "bird"):
            page.evaluate(CHANGE, f"The {word} sleeps in the small house.")
        texts = [
            f"The {noun} {verb} in the {size} house." for verb, size in VERBS for noun in NOUNS
        ]
        times = [page.evaluate(CHANGE, text) for text in texts]
        context.close()
    return {
        "changed word to picture, median milliseconds": round(statistics.median(times)),
        "changed word to picture, longest": round(max(times)),
    }


if __name__ == "__main__":
    sys.exit(main())
