"""What does a run (`train_translation`, `keras-attention train`) cost on top of `fit` with the same batches?

    python benchmarks/run_overhead.py                               # the demo's model and batches
    python benchmarks/run_overhead.py --backends torch --rounds 5 --json FILE

Both do the first updates of an epoch of the demo corpus, the same in each turn, each in its own process. The
updates and the work between them are timed; see `peers/training/recipe.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import Spec, compare, run_facts, split_by_presence, table, write_json
from peers.backends import BACKENDS, installed_backends, keras_environment
from records import record_path


def main() -> int:
    """Compare and print; returns 1 if a program has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backends", nargs="+", choices=BACKENDS, default=installed_backends())
    add("--preset", default="tiny")
    add("--updates", type=int, default=300, help="updates per turn")
    add("--rounds", type=int, default=3)
    add("--threads", type=int, help="CPUs of each process; default: all")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    options = parser.parse_args()
    facts = run_facts()
    outcomes = []
    for backend in options.backends:
        specs = [
            Spec(
                f"{name}, {BACKENDS[backend]}",
                "peers.training.recipe:DemoTraining",
                {"preset": options.preset, "as_run": as_run, "updates": options.updates},
                keras_environment(backend),
                {backend: backend},
            )
            for name, as_run in (("fit", False), ("train_translation", True))
        ]
        present, _ = split_by_presence(specs)
        found = compare(
            present,
            options.rounds,
            1,
            threads=options.threads,
            log=lambda text: print(text, file=sys.stderr, flush=True),
        )
        rates = {"tokens": ("tokens/s", 1.0)}
        print(table(found, rates, "turn", None, ratio_to=[spec.name for spec in present[:1]]))
        outcomes += found
    case = {"model": options.preset}
    record = record_path("run_overhead", case, facts) if options.record else None
    for path in filter(None, (options.json, record)):
        more = {"benchmark": "run_overhead", "case": case, "source": "measured"}
        write_json(path, facts, outcomes, **more)
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
