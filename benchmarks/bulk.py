"""Do two processes translate a corpus in half the time? Each process has one CPU and one thread.

    python benchmarks/bulk.py                                       # tiny, 1 and 2 processes
    python benchmarks/bulk.py --processes 1 2 4 --preset base --sentences 2000 --record

The processes share the chunks as with `keras-attention translate --chunk K/N`, in one folder. The time runs
from the start of all processes to the joined result, without loading the model. The results must be equal
byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import Spec, compare, run_facts, table, write_json
from peers.backends import BACKENDS, keras_environment
from records import record_path


def main() -> int:
    """Compare and print; returns 1 if something failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backend", choices=BACKENDS, default="tensorflow")
    add("--processes", type=int, nargs="+", default=[1, 2])
    add("--preset", default="tiny")
    add("--vocabulary-size", type=int, default=4000)
    add("--sentences", type=int, default=2000)
    add("--chunk-lines", type=int, default=100)
    add("--batch-size", type=int, default=32)
    add("--beam-size", type=int, default=4)
    add("--rounds", type=int, default=5)
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add(
        "--record",
        action="store_true",
        help="also write a record to benchmarks/results/, for the tables",
    )
    options = parser.parse_args()
    facts = run_facts()
    with tempfile.TemporaryDirectory(prefix="bulk-job-") as folder:
        write_job(folder, options)
        specs = [
            Spec(
                f"{count} process" + ("es" if count > 1 else ""),
                "peers.decoding.bulk:Shares",
                {
                    "folder": folder,
                    "processes": count,
                    "chunk_lines": options.chunk_lines,
                    "batch_size": options.batch_size,
                },
                keras_environment(options.backend),
            )
            for count in options.processes
        ]
        outcomes = compare(
            specs,
            options.rounds,
            1,
            run_limit=1800,
            prepare_limit=1800,
            differing=different_bytes,
            log=lambda text: print(text, file=sys.stderr, flush=True),
        )
    rates = {"sentences": ("sentences/s", 1.0)}
    print(table(outcomes, rates, "corpus", None, ratio_to=[specs[0].name]))
    names = ("backend", "preset", "sentences", "beam_size")
    case = {name: getattr(options, name) for name in names}
    record = record_path("bulk", case, facts) if options.record else None
    for path in filter(None, (options.json, record)):
        write_json(path, facts, outcomes, benchmark="bulk", case=case, source="measured")
    return int(any(outcome.failure for outcome in outcomes))


def write_job(folder: str, options: argparse.Namespace) -> None:
    """Make a random model and a corpus of random sentences, in a process of its own, which needs Keras."""
    names = ("preset", "vocabulary_size", "sentences", "beam_size")
    settings: dict[str, Any] = {name: getattr(options, name) for name in names}
    settings |= {"run": None, "checked": 8, "length_penalty": 0.6, "extra_length": 3}
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    subprocess.run(
        [sys.executable, "-m", "peers.decoding.make_job", folder, json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=True,
    )
    texts = json.loads(Path(folder, "job.json").read_text("utf-8"))["texts"]
    Path(folder, "corpus.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")


def different_bytes(reference: dict[str, Any], other: dict[str, Any]) -> str | None:
    """Says so if the joined results are not the same."""
    return None if reference == other else "the joined results differ"


if __name__ == "__main__":
    sys.exit(main())
