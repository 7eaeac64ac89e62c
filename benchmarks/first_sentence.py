"""How long from the start of a program to its first translation, and how much memory does it take?

    python benchmarks/first_sentence.py RUN                 # the folder of a finished run
    python benchmarks/first_sentence.py RUN --rounds 9 --record

Two programs take turns: the command `keras-attention translate RUN`, which gets one line of text, and
CTranslate2 with the same weights, which gets the same sentence as tokens and need not split it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import Subject, Worker, add_record_option, run_facts, write_record

PEER = """
import json, sys
import ctranslate2
tokens = json.loads(sys.stdin.read())
translator = ctranslate2.Translator(sys.argv[1], compute_type="float32")
print(translator.translate_batch([tokens], beam_size=4)[0].hypotheses[0])
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", type=Path, help="folder of a finished run")
    add("--sentence", default="The cat sleeps.")
    add("--rounds", type=int, default=5)
    add_record_option(parser)
    options = parser.parse_args()
    facts = run_facts()
    with tempfile.TemporaryDirectory(prefix="first-sentence-") as folder:
        given = {"run": str(options.run), "sentence": options.sentence, "folder": f"{folder}/model"}
        with Worker("first_sentence:Exported", given) as worker:
            tokens = worker.call("prepare", 600)["tokens"]
        command = str(Path(sys.executable).with_name("keras-attention"))
        peer = [sys.executable, "-c", PEER, given["folder"]]
        programs = {
            "keras_attention": ([command, "translate", str(options.run)], options.sentence),
            "CTranslate2": (peer, json.dumps(tokens)),
        }
        # Once before, so that files are cached and compiled code is kept.
        found = {name: [started(*program)] for name, program in programs.items()}
        for _ in range(options.rounds):
            for name, program in programs.items():
                found[name].append(started(*program))
    figures = {}
    for name, measured in found.items():
        seconds, gigabytes = zip(*measured[1:], strict=True)
        figures[name] = {
            "seconds": round(statistics.median(seconds), 2),
            "gigabytes": round(max(gigabytes), 2),
            "samples": [round(value, 3) for value in seconds],
        }
        print(
            f"{name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
            f"{max(gigabytes):.2f} GB; the first start: {measured[0][0]:.2f} s"
        )
    named = {"command, model, one sentence": figures}
    write_record(options.record, facts, "start", {"what": "first sentence"}, figures=named)
    return 0


class Exported(Subject):
    """Writes a run's model for CTranslate2; by itself, as a child's peak begins with its parent's memory."""

    def __init__(self, run: str, sentence: str, folder: str) -> None:
        self.run_folder, self.sentence, self.folder = run, sentence, Path(folder)

    def prepare(self) -> dict[str, Any]:
        from keras_attention import Translator, export_ctranslate2

        translator = Translator.from_run(self.run_folder)
        export_ctranslate2(translator.model, translator.tokenizer, self.folder)
        names = json.loads((self.folder / "shared_vocabulary.json").read_text("utf-8"))
        return {"tokens": [names[index] for index in translator.tokenizer.encode(self.sentence)]}


def started(command: list[str], text: str) -> tuple[float, float]:
    """Seconds and peak memory in gigabytes of a program that reads a text and writes another."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile() as written:
        given.write(text)
        given.seek(0)
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdin=given, stdout=written, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        if status or not written.tell():
            raise SystemExit(f"{command} failed")
    # Bytes on macOS, elsewhere kilobytes.
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


if __name__ == "__main__":
    sys.exit(main())
