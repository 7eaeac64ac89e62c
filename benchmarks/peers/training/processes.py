"""The demo corpus' recipe in processes that `torchrun` starts, or in one without it.

As a program (`python -m peers.training.processes SETTINGS`, JSON) it is one of the processes.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.subject import Subject

BENCHMARKS = Path(__file__).resolve().parents[2]


class Processes(Subject):
    """A sample is some updates of all processes together; they start anew for each round, and warm up one.

    Args:
        preset: The model's size.
        updates: Updates of a sample.
        processes: Processes under `torchrun`; 0 for one without it.
        batch_tokens: Of a batch; the recipe's if not given.
        parts: Only one of so many parts of each batch's rows is trained on, by a process without `torchrun`.
    """

    def __init__(
        self,
        preset: str,
        updates: int,
        processes: int,
        batch_tokens: int | None = None,
        parts: int = 1,
    ) -> None:
        self.processes = processes
        self.settings = {
            "preset": preset,
            "updates": updates,
            "batch_tokens": batch_tokens,
            "parts": parts,
        }

    def prepare(self) -> dict[str, Any]:
        return self._start(0)["facts"]

    def run(self, count: int) -> list[float]:
        return self._start(count)["seconds"]

    def _start(self, samples: int) -> dict[str, Any]:
        started = [sys.executable, "-m"]
        if self.processes:
            started += ["torch.distributed.run", "--standalone"]
            started += [f"--nproc-per-node={self.processes}", "-m"]
        done = subprocess.run(
            [
                *(*started, "peers.training.processes"),
                json.dumps({**self.settings, "samples": samples}),
            ],
            cwd=BENCHMARKS,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode:  # Of several processes, the first error is the cause of the others.
            why = re.search(r"\w+Error: .+", done.stderr)
            raise RuntimeError(why[0] if why else done.stderr[-1000:])
        return json.loads(done.stdout.splitlines()[-1])


def main(preset: str, updates: int, batch_tokens: int | None, parts: int, samples: int) -> None:
    """Train, and have the chief say how long each sample took."""
    from keras_attention.training.distribution import distribution_scope
    from peers.training.recipe import DemoTraining

    recipe = DemoTraining(preset, updates=updates, batch_tokens=batch_tokens)
    with distribution_scope("data_parallel" if "RANK" in os.environ else None) as devices:
        facts = {**recipe.build(), "work": recipe.work()}
        facts["work"]["tokens"] /= parts
        if parts > 1:
            recipe.batches = recipe.batches.shard(0, parts)
        recipe.devices = devices
        seconds = recipe.run(1 + samples)[1:] if samples else []
        if devices.num_processes > 1:
            facts["sum_seconds"] = seconds_of_a_sum(facts["parameters"])
    if devices.process_index == 0:
        print(json.dumps({"facts": facts, "seconds": seconds}), flush=True)


def seconds_of_a_sum(parameters: int, times: int = 20) -> float:
    """Median seconds in which the processes sum so many gradients, as an update does."""
    import torch

    from keras_attention.training.processes import in_training_step, sum_over_processes

    gradients, seconds = torch.ones(parameters), []
    with in_training_step():
        for _ in range(times):
            before = time.perf_counter()
            sum_over_processes([gradients])
            seconds.append(time.perf_counter() - before)
    return statistics.median(seconds)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
