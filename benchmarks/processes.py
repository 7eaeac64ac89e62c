"""What do several processes cost and gain? Compares no `torchrun`, one process under it, and two processes.

    python benchmarks/processes.py                                # the demo's model and batches, on PyTorch
    python benchmarks/processes.py --preset small --batch-tokens 8192 --record

Each process has one thread. All train the same batches of the demo corpus, as `train_translation` does. The
updates and the work between them are timed. Two processes need two free CPUs. The last lines say where the
time of two goes: to half of the rows of each batch (one process alone trained on them), to the sums of the
gradients by themselves, and to the rest. They also give half of the time
of one process, plus the sums.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import Spec, compare, run_facts, split_by_presence, table, write_json
from peers.backends import keras_environment
from records import record_path

NAMES = {0: "one process", 1: "one under torchrun", 2: "two under torchrun"}
HALF = "one, half of the rows"


def main() -> int:
    """Compare and print; returns 1 if a program has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--preset", default="tiny")
    add("--batch-tokens", type=int, help="of a batch; default: those of the demo's recipe")
    add("--rounds", type=int, default=5)
    add("--updates", type=int, default=100, help="updates per sample")
    add("--samples", type=int, default=1, help="timed in each round, after one to warm up")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--record", action="store_true", help="also write a record to benchmarks/results/")
    options = parser.parse_args()
    facts = run_facts()
    given = {"preset": options.preset, "updates": options.updates}
    if options.batch_tokens is not None:
        given["batch_tokens"] = options.batch_tokens
    subjects = {name: {"processes": processes} for processes, name in NAMES.items()}
    subjects[HALF] = {"processes": 0, "parts": 2}
    specs = [
        Spec(
            name,
            "peers.training.processes:Processes",
            {**given, **more},
            keras_environment("torch"),
            {"torch": "torch"},
        )
        for name, more in subjects.items()
    ]
    present, _ = split_by_presence(specs)
    outcomes = compare(
        present,
        options.rounds,
        options.samples,
        warmup=0,  # Each start has its own.
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
    found = {outcome.spec.name: outcome for outcome in outcomes if not outcome.failure}
    formula, sums = None, None
    if {NAMES[0], NAMES[2], HALF} <= found.keys():
        seconds = {name: outcome.seconds.median for name, outcome in found.items()}
        work = found[NAMES[2]].facts["work"]
        sums = work["updates"] * found[NAMES[2]].facts["sum_seconds"]
        formula = seconds[NAMES[0]] / 2 + sums
        rest = seconds[NAMES[2]] - seconds[HALF] - sums
        print(f"tokens in a batch: {work['tokens'] / work['updates']:.0f}")
        print(f"two: {seconds[HALF]:.3f} s half of the rows, {sums:.3f} s sums, {rest:.3f} s rest")
        print(f"two by half of one, and the sums: {formula:.3f} s")
    case = {"model": options.preset}
    if options.batch_tokens is not None:
        case["batch_tokens"] = options.batch_tokens
    record = record_path("processes", case, facts) if options.record else None
    for path in filter(None, (options.json, record)):
        more = {"benchmark": "processes", "case": case, "source": "measured"}
        write_json(path, facts, outcomes, **more, formula=formula, sums=sums)
    return int(not outcomes or any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
