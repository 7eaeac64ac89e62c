"""Does `keras-attention serve` lose or mix up nothing, and how fast is it beside the same model in Python?

    python benchmarks/serve.py demo_en_de                   # 10,000 requests by 64 clients, three times
    python benchmarks/serve.py RUN --input new.en --record   # a run's model, with sentences of its own

A server is started as a process of its own. (1) Many clients, each with a connection that stays open, ask for
one sentence after another; every answer is compared with what the model gives in Python for this sentence.
(2) The throughput stands beside that of `Translator.translate` in batches of as many sentences as there are
clients. (3) One client asks for sentences one by one; the median time stands beside that of a call in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import run_facts
from records import record_path, write_figures

from keras_attention_light import load_translator

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("en", "de")
READY = re.compile(r"ready on http://127\.0\.0\.1:(\d+)")
SINGLE = 300  # sentences that one client asks for


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", help="what `keras-attention serve` takes")
    add("--input", type=Path, metavar="FILE", help="sentences, one a line (the demo corpus)")
    add("--requests", type=int, default=10_000, help="requests of a round (10,000)")
    add("--clients", type=int, default=64, help="clients at once (64)")
    add("--rounds", type=int, default=3, help="rounds, in turns with Python (3)")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    options = parser.parse_args()
    facts = run_facts()
    texts = _texts(options)
    translator = load_translator(options.model, show_progress=False)
    # As the server does: asked for by its name, an engine is compiled before it translates.
    translator = dataclasses.replace(translator, engine=translator.engine_for(options.clients).name)
    expected = [best[0].text for best in translator.translate(texts)]
    served, called = [], []
    with _server(options.model) as port:
        asyncio.run(_answers(port, texts[: 4 * options.clients], options.clients))  # warm
        before = _batches(port)
        wrong = {"lost": 0, "mixed up": 0, "differ by rounding": 0}
        for _ in range(options.rounds):
            begun = time.perf_counter()
            answers = asyncio.run(_answers(port, texts, options.clients))
            served.append(len(texts) / (time.perf_counter() - begun))
            _compare(texts, answers, expected, translator, wrong)
            begun = time.perf_counter()
            for first in range(0, len(texts), options.clients):
                translator.translate(texts[first : first + options.clients])
            called.append(len(texts) / (time.perf_counter() - begun))
        after = _batches(port)
        single = asyncio.run(_alone(port, texts[:SINGLE], translator))
    together = (after[0] - before[0]) / (after[1] - before[1])
    figures = {
        "requests": options.rounds * len(texts),
        **wrong,
        "texts translated together, mean": round(together, 1),
        "served sentences per second": round(statistics.median(served), 1),
        "translated sentences per second": round(statistics.median(called), 1),
        "throughput, served to translated": round(
            statistics.median(served) / statistics.median(called), 3
        ),
        **single,
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    case = {
        "model": Path(options.model).name,
        "requests": options.requests,
        "clients": options.clients,
    }
    record = record_path("serve", case, facts) if options.record else None
    write_figures(facts, "serve", case, {"server and Python": figures}, (options.json, record))
    return 1 if wrong["lost"] or wrong["mixed up"] else 0


def _texts(options: argparse.Namespace) -> list[str]:
    """Return a sentence for each request; those of the demo corpus differ from each other."""
    if options.input is None:
        from keras_attention.data.corpora import load_corpus

        lines: Any = load_corpus("demo").train.sources()
    else:
        lines = options.input.read_text("utf-8").splitlines()
    found = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    return list(itertools.islice(itertools.cycle(found), options.requests))


@contextlib.contextmanager
def _server(model: str) -> Iterator[int]:
    """Start a server, and return its port; at the end it must stop cleanly."""
    command = [sys.executable, "-m", "keras_attention_light", "serve", model, "--port", "0"]
    process = subprocess.Popen(
        [*command, "--languages", *LANGUAGES],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr)
            if ready := READY.search(line):
                break
        else:
            raise SystemExit("The server has not started.")
        yield int(ready[1])
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait() != 128 + signal.SIGTERM:
            raise SystemExit(f"The server has ended with {process.returncode}.")


class _Client:
    """A connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> _Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, text: str) -> str | None:
        """Return the translation; None if there is none."""
        source, target = LANGUAGES
        body = json.dumps({"q": text, "source": source, "target": target}).encode()
        self.writer.write(
            b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        size = re.search(rb"content-length: (\d+)", head)
        assert size is not None
        content = json.loads(await self.reader.readexactly(int(size[1])))
        return content["translatedText"] if head.startswith(b"http/1.1 200") else None


async def _answers(port: int, texts: Sequence[str], clients: int) -> list[str | None]:
    """Return the answers for all texts; each client asks for the next one when it has its answer."""
    answers: list[str | None] = [None] * len(texts)
    left = iter(range(len(texts)))

    async def work() -> None:
        client = await _Client.connect(port)
        for index in left:
            answers[index] = await client.ask(texts[index])
        client.writer.close()

    await asyncio.gather(*(work() for _ in range(clients)))
    return answers


def _compare(
    texts: Sequence[str],
    answers: Sequence[str | None],
    expected: Sequence[str],
    translator: Any,
    wrong: dict[str, int],
) -> None:
    """Count what was lost, what belongs to another sentence, and what only rounding explains."""
    for text, answer, own in zip(texts, answers, expected, strict=True):
        if answer is None:
            wrong["lost"] += 1
        elif answer != own:
            # A batch of another shape rounds otherwise: two hypotheses of like scores may change places.
            best = translator.translate(text, n_best=min(2, translator.beam_size))
            close = len(best) == 2 and abs(best[0].score - best[1].score) < 1e-4
            is_own = close and answer in [one.text for one in best]
            wrong["differ by rounding" if is_own else "mixed up"] += 1


async def _alone(port: int, texts: Sequence[str], translator: Any) -> dict[str, float]:
    """Return the median times of a request and of a call, in turns."""
    client = await _Client.connect(port)
    asked, called = [], []
    for text in texts:
        begun = time.perf_counter()
        await client.ask(text)
        asked.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        translator(text)
        called.append(time.perf_counter() - begun)
    client.writer.close()
    medians = [1000 * statistics.median(times) for times in (asked, called)]
    return {
        "milliseconds of a request, median": round(medians[0], 3),
        "milliseconds of a call, median": round(medians[1], 3),
        "time, request to call": round(medians[0] / medians[1], 3),
    }


def _batches(port: int) -> tuple[float, float]:
    """Return how many texts the server has translated, and in how many batches."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    found = [
        re.search(rf"^keras_attention_batch_texts_{name} (\S+)$", text, re.MULTILINE)
        for name in ("sum", "count")
    ]
    assert found[0] and found[1]
    return float(found[0][1]), float(found[1][1])


if __name__ == "__main__":
    sys.exit(main())
