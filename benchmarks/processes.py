"""What do several processes cost and gain? Compares no `torchrun`, one process under it, and two processes.

    python benchmarks/processes.py                                # the demo's model and batches, on PyTorch
    python benchmarks/processes.py --preset small --record

Each process has one thread. All train the same batches of the demo corpus, as `train_translation` does. The
updates and the work between them are timed. Two processes need two free CPUs. The last line compares two
processes with the formula of `--plan`: half of the time of one process, plus the time that summing the
gradients takes alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import Outcome, Spec, compare, run_facts, split_by_presence, table, write_json
from peers.backends import keras_environment
from records import record_path

NAMES = {0: "one process", 1: "one under torchrun", 2: "two under torchrun"}


def main() -> int:
    """Compare and print; returns 1 if a program has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--preset", default="tiny")
    add("--rounds", type=int, default=5)
    add("--updates", type=int, default=100, help="updates per sample")
    add("--samples", type=int, default=1, help="timed in each round, after one to warm up")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    options = parser.parse_args()
    facts = run_facts()
    specs = [
        Spec(
            name,
            "peers.training.processes:Processes",
            {"preset": options.preset, "updates": options.updates, "processes": processes},
            keras_environment("torch"),
            {"torch": "torch"},
        )
        for processes, name in NAMES.items()
    ]
    present, _ = split_by_presence(specs)
    outcomes = compare(
        present,
        options.rounds,
        options.samples,
        log=lambda text: print(text, file=sys.stderr, flush=True),
    )
    rates = {"tokens": ("tokens/s", 1.0)}
    print(
        table(
            outcomes,
            rates,
            f"{options.updates} updates",
            None,
            ratio_to=[spec.name for spec in present[:1]],
        )
    )
    formula = formula_seconds(outcomes)
    if formula is not None:
        print(f"two under torchrun by the formula of --plan: {formula:.3f} s")
    case = {"model": options.preset}
    record = record_path("processes", case, facts) if options.record else None
    for path in filter(None, (options.json, record)):
        more = {"benchmark": "processes", "case": case, "source": "measured", "formula": formula}
        write_json(path, facts, outcomes, **more)
    return int(not outcomes or any(outcome.failure for outcome in outcomes))


def formula_seconds(outcomes: Sequence[Outcome]) -> float | None:
    """Seconds of two processes as `--plan` estimates them, from one process and the sums; None if unknown."""
    found = {outcome.spec.name: outcome for outcome in outcomes if not outcome.failure}
    if not {NAMES[0], NAMES[2]} <= found.keys():
        return None
    alone, two = found[NAMES[0]], found[NAMES[2]]
    return alone.seconds.median / 2 + two.facts["work"]["updates"] * two.facts["sum_seconds"]


if __name__ == "__main__":
    sys.exit(main())
