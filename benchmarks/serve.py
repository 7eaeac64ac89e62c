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
import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import add_record_option, run_facts, write_record
from harness.subject import timed

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
    add_record_option(parser)
    options = parser.parse_args()
    facts, clients = run_facts(), options.clients
    texts = _texts(options)
    translator = load_translator(options.model, show_progress=False)
    # As the server does: asked for by its name, an engine is compiled before it translates.
    translator = dataclasses.replace(translator, engine=translator.engine_for(clients).name)
    expected = [best[0].text for best in translator.translate(texts)]
    served, called = [], []
    wrong = {"lost": 0, "mixed up": 0, "differ by rounding": 0}
    with _server(options.model) as port, ThreadPoolExecutor(clients) as pool:
        client = _Client(port)
        list(pool.map(client.ask, texts[: 4 * clients]))  # warm
        before = client.batches()
        for _ in range(options.rounds):
            begun = time.perf_counter()
            answers = list(pool.map(client.ask, texts))
            served.append(len(texts) / (time.perf_counter() - begun))
            _compare(texts, answers, expected, translator, wrong)
            begun = time.perf_counter()
            for first in range(0, len(texts), clients):
                translator.translate(texts[first : first + clients])
            called.append(len(texts) / (time.perf_counter() - begun))
        after = client.batches()
        ways = (client.ask, translator)  # a request and a call in turns
        alone = [[timed(lambda: way(text), 1)[0] for way in ways] for text in texts[:SINGLE]]  # noqa: B023
    rates = [statistics.median(each) for each in (served, called)]
    asked, own = (1000 * statistics.median(each) for each in zip(*alone, strict=True))
    figures = {
        "requests": options.rounds * len(texts),
        **wrong,
        "texts translated together, mean": round(
            (after[0] - before[0]) / (after[1] - before[1]), 1
        ),
        "served sentences per second": round(rates[0], 1),
        "translated sentences per second": round(rates[1], 1),
        "throughput, served to translated": round(rates[0] / rates[1], 3),
        "milliseconds of a request, median": round(asked, 3),
        "milliseconds of a call, median": round(own, 3),
        "time, request to call": round(asked / own, 3),
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    case = {"model": Path(options.model).name, "requests": options.requests, "clients": clients}
    write_record(options.record, facts, "serve", case, figures={"server and Python": figures})
    return 1 if wrong["lost"] or wrong["mixed up"] else 0


def _texts(options: argparse.Namespace) -> list[str]:
    """Return a sentence for each request; those of the demo corpus differ from each other."""
    if options.input is None:
        from keras_attention import load_corpus

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
    """Asks a server; each thread has a connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port, self._own = port, threading.local()

    def ask(self, text: str) -> str | None:
        """Return the translation; None if there is none."""
        body = json.dumps({"q": text, "source": LANGUAGES[0], "target": LANGUAGES[1]})
        status, answer = self._answer(
            "POST", "/translate", body, {"Content-Type": "application/json"}
        )
        return json.loads(answer)["translatedText"] if status == 200 else None

    def batches(self) -> tuple[float, float]:
        """Return how many texts the server has translated, and in how many batches."""
        text = self._answer("GET", "/metrics")[1]
        found = dict(
            re.findall(r"^keras_attention_batch_texts_(sum|count) (\S+)$", text, re.MULTILINE)
        )
        return float(found["sum"]), float(found["count"])

    def _answer(self, *request: Any) -> tuple[int, str]:
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection("127.0.0.1", self._port)
        self._own.connection.request(*request)
        response = self._own.connection.getresponse()
        return response.status, response.read().decode()


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


if __name__ == "__main__":
    sys.exit(main())
