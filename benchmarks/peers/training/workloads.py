"""What is trained: the named workloads, and their batches as a file."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from harness import Worker

from peers.backends import installed_backends
from peers.training.batches import random_batch, write_batches
from peers.weights import Sizes


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained, on what, and how it is timed."""

    sizes: Sizes
    unit: str
    rounds: int
    count: int
    batch_tokens: int = 0
    epoch_pairs: int = 0
    max_shapes: int = 24
    lengths: str = "multi30k"


BASE = Sizes(37_000, 6, 512, 2048, 8)
WORKLOADS = {
    "base": Workload(BASE, "update", rounds=5, count=2),
    "tiny": Workload(Sizes(2_000, 2, 128, 512, 4), "update", rounds=5, count=20),
    # The preset `small` with Multi30K's vocabulary; `small` below is wider, as records have it.
    "small_update": Workload(Sizes(5_000, 4, 128, 256, 4, 0.3), "update", rounds=5, count=10),
    "small": Workload(Sizes(8_000, 4, 256, 1024, 4), "epoch", 3, 1, 3_000, 4_000),
    "paper": Workload(BASE, "epoch", 3, 1, 25_000, 40_000, max_shapes=8, lengths="wmt"),
}


def chosen_workload(options: argparse.Namespace) -> Workload:
    """Return the named workload with what the command line replaces."""
    workload = WORKLOADS[options.workload]

    def given(kind: type) -> dict[str, Any]:
        fields = [field.name for field in dataclasses.fields(kind)]
        return {
            name: value for name in fields if (value := getattr(options, name, None)) is not None
        }

    sizes = dataclasses.replace(workload.sizes, **given(Sizes))
    return dataclasses.replace(workload, sizes=sizes, **given(Workload))


def make_batches(
    options: argparse.Namespace, workload: Workload, path: Path
) -> tuple[Workload, dict[str, Any]]:
    """Write the batches; returns the workload with the vocabulary that they have, and their facts."""
    size = workload.sizes.vocabulary_size
    if workload.unit == "update":
        data = {"data": "random ids", "pairs": options.pairs, "length": options.length}
        batches = [random_batch(options.pairs, options.length, size, seed) for seed in range(4)]
        write_batches(path, batches, data)
        return workload, data
    maker = {
        "path": str(path),
        "vocabulary_size": size,
        "batch_tokens": workload.batch_tokens,
        "pairs": workload.epoch_pairs,
        "lengths": workload.lengths,
        "data_dir": options.data_dir,
        "max_shapes": workload.max_shapes,
        "length_multiple": 8 if options.workload == "paper" else 1,
        "num_batches": options.num_batches,
    }
    environment = {"KERAS_BACKEND": installed_backends()[0], "TF_CPP_MIN_LOG_LEVEL": "3"}
    with Worker("peers.training.make_batches:BatchMaker", maker, environment) as worker:
        data = worker.call("prepare", options.time_limit)
    sizes = dataclasses.replace(workload.sizes, vocabulary_size=data["vocabulary_size"])
    return dataclasses.replace(workload, sizes=sizes), data


def workload_text(options: argparse.Namespace, workload: Workload) -> str:
    """One line on what is trained."""
    s = workload.sizes
    layers = f"{s.num_layers}+{s.num_layers} layers of {s.hidden_dim}/{s.intermediate_dim}"
    model = f"{layers}, V {s.vocabulary_size:,}"
    if workload.unit == "update":
        return (
            f"{model}, {options.dtype}; updates of {options.pairs} pairs x {options.length} tokens"
        )
    return (
        f"{model}, {options.dtype}; epochs of batches of {workload.batch_tokens:,} positions a side"
    )
