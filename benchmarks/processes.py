"""What do several processes cost and gain? Compares no `torchrun`, one process under it, and two processes.

    python benchmarks/processes.py                                # the demo's model and batches, on PyTorch
    python benchmarks/processes.py --preset small --batch-tokens 8192 --record

Each process has one thread. All train on the same batches of the demo corpus by `fit`. Two processes need two
free CPUs. The last lines say where the time of two goes: to half of the rows of each batch (one process alone
trained on them), to the sums of the gradients by themselves, and to the rest. They also give half of the time
of one process, plus the sums.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import (
    Spec,
    Subject,
    add_record_option,
    compare,
    comparison,
    installed,
    run_facts,
    table,
    write_record,
)
from harness.subject import timed
from peers.backends import keras_environment

NAMES = {0: "one process", 1: "one under torchrun", 2: "two under torchrun"}
HALF = "one, half of the rows"
WARMUP = 2  # updates


def main() -> int:
    """Compare and print; returns 1 if a program has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--preset", default="tiny")
    add("--batch-tokens", type=int, help="of a batch; default: those of the demo's recipe")
    add("--rounds", type=int, default=5)
    add("--updates", type=int, default=100, help="timed updates of a round, at most an epoch's")
    add("--one", type=json.loads, help=argparse.SUPPRESS)
    add_record_option(parser)
    options = parser.parse_args()
    if options.one:
        train(**options.one)
        return 0
    facts, environment = run_facts(), keras_environment("torch")
    os.environ |= environment
    subjects = {name: {"processes": processes} for processes, name in NAMES.items()}
    subjects[HALF] = {"processes": 0, "parts": 2}
    with tempfile.TemporaryDirectory(prefix="processes-") as folder:
        given = {
            "preset": options.preset,
            "updates": options.updates,
            "store": make_store(folder),
            "batch_tokens": options.batch_tokens,
        }
        specs = [
            Spec(name, "processes:Processes", {**given, **more}, environment, {"torch": "torch"})
            for name, more in subjects.items()
        ]
        # Each start has its own warm-up.
        outcomes = compare(installed(specs), options.rounds, warmup=0)
    rates = {"tokens": ("tokens/s", 1.0)}
    print(table(outcomes, rates, f"{options.updates} updates", ratio_to=[NAMES[0]]))
    found = {outcome.spec.name: outcome for outcome in outcomes if not outcome.failure}
    formula, sums = None, None
    if {NAMES[0], NAMES[2], HALF} <= found.keys():
        one, two, half = (found[name].seconds.median for name in (NAMES[0], NAMES[2], HALF))
        work = found[NAMES[2]].facts["work"]
        sums = work["updates"] * found[NAMES[2]].facts["sum_seconds"]
        formula = one / 2 + sums
        print(f"tokens in a batch: {work['tokens'] / work['updates']:.0f}")
        print(
            f"two: {half:.3f} s half of the rows, {sums:.3f} s sums, {two - half - sums:.3f} s rest"
        )
        print(f"two by half of one, and the sums: {formula:.3f} s")
    case = {"model": options.preset}
    if options.batch_tokens is not None:
        case["batch_tokens"] = options.batch_tokens
    figures = {**comparison(outcomes), "formula": formula, "sums": sums}
    write_record(options.record, facts, "processes", case, **figures)
    return int(not outcomes or any(outcome.failure for outcome in outcomes))


def make_store(folder: str) -> str:
    """Write the demo corpus as token ids, with the tokenizer of its recipe."""
    from keras_attention import Tokenizer, TokenStore, load_corpus
    from keras_attention.recipes import RECIPES

    text = load_corpus("demo").train
    tokenizer = Tokenizer.train(text.both_sides(), RECIPES["demo"].vocabulary_size)
    return str(TokenStore.build(folder, text, tokenizer, verbose=False).folder)


class Processes(Subject):
    """A sample is some updates of all processes together, which start anew for each round.

    Args:
        processes: Processes under `torchrun`; 0 for one without it.
        **settings: Arguments of `train`.
    """

    def __init__(self, processes: int, **settings: Any) -> None:
        self.processes, self.settings = processes, settings

    def prepare(self) -> dict[str, Any]:
        return self._start(is_timed=False)["facts"]

    def run(self, count: int) -> list[float]:
        return [self._start(is_timed=True)["seconds"] for _ in range(count)]

    def _start(self, is_timed: bool) -> dict[str, Any]:
        settings = json.dumps({**self.settings, "is_timed": is_timed})
        command = [str(Path(__file__).resolve()), "--one", settings]
        if self.processes:
            torchrun = ["torch.distributed.run", "--standalone"]
            command = ["-m", *torchrun, f"--nproc-per-node={self.processes}", *command]
        done = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode:  # Of several processes, the first error is the cause of the others.
            why = re.search(r"\w+Error: .+", done.stderr)
            raise RuntimeError(why[0] if why else done.stderr[-1000:])
        return json.loads(done.stdout.splitlines()[-1])


def train(
    preset: str,
    updates: int,
    store: str,
    batch_tokens: int | None,
    is_timed: bool,
    parts: int = 1,
) -> None:
    """Train, and have the chief say how long it took.

    Args:
        preset: The model's size.
        updates: To be timed; at most an epoch's.
        store: Folder of the tokens.
        batch_tokens: Of a batch; the recipe's if not given.
        is_timed: Whether to train; else only the facts are said.
        parts: Only one of so many parts of each batch's rows is trained on, by a process without `torchrun`.
    """
    import keras
    from peers.training.programs import update_clock

    from keras_attention import (
        Adam,
        LabelSmoothedCrossentropy,
        TokenBatches,
        TokenStore,
        Transformer,
        tune_memory,
    )
    from keras_attention.recipes import RECIPES
    from keras_attention.training import distribution_scope

    tune_memory()
    with distribution_scope("data_parallel" if "RANK" in os.environ else None) as devices:
        size = batch_tokens or RECIPES["demo"].batch_tokens
        batches = TokenBatches(TokenStore(store), size, num_replicas=2)
        indices = range(len(batches))[WARMUP : WARMUP + updates]
        tokens = sum(sum(batches.tokens_in_batch(0, index)) for index in indices)
        model = Transformer.from_preset(preset, batches.vocabulary_size, seed=1)
        model.compile(Adam(1e-4), LabelSmoothedCrossentropy())
        facts: dict[str, Any] = {"parameters": model.count_params()}
        facts["work"] = {"tokens": tokens / parts, "updates": len(indices)}
        clock = update_clock(keras)
        if is_timed:
            own = (0, parts) if parts > 1 else (devices.process_index, devices.num_processes)
            steps = WARMUP + len(indices)
            rows = batches.shard(*own)
            model.fit(rows, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[clock])
        elif devices.num_processes > 1:
            facts["sum_seconds"] = seconds_of_a_sum(model.count_params())
    if devices.process_index == 0:
        print(json.dumps({"facts": facts, "seconds": sum(clock.seconds[WARMUP:])}), flush=True)


def seconds_of_a_sum(parameters: int) -> float:
    """Median seconds in which the processes sum so many gradients, as an update does."""
    import torch

    from keras_attention.training.processes import in_training_step, sum_over_processes

    gradients = torch.ones(parameters)
    with in_training_step():
        return statistics.median(timed(lambda: sum_over_processes([gradients]), 20))


if __name__ == "__main__":
    sys.exit(main())
