"""The batches that every program is fed, as a file: NumPy alone reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Source ids (B, S), decoder ids (B, T), labels (B, T), all int32; 0 is padding.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def write_batches(path: Path, batches: Sequence[Batch], facts: dict[str, Any]) -> None:
    """Write batches and what is known of them to an `.npz` file."""
    arrays: dict[str, Any] = {
        f"{name}_{index}": array
        for index, batch in enumerate(batches)
        for name, array in zip(("source", "decoder", "labels"), batch, strict=True)
    }
    beside = path.with_name(f".{path.name}.{os.getpid()}.npz")
    np.savez(beside, facts=np.array(json.dumps(facts)), count=np.array(len(batches)), **arrays)
    os.replace(beside, path)


def read_batches(path: str | Path) -> tuple[list[Batch], dict[str, Any]]:
    """Return what `write_batches` wrote."""
    with np.load(path) as file:
        batches = [
            tuple(file[f"{name}_{index}"] for name in ("source", "decoder", "labels"))
            for index in range(int(file["count"]))
        ]
        return batches, json.loads(str(file["facts"]))


def random_batch(pairs: int, length: int, vocabulary_size: int, seed: int) -> Batch:
    """Return a batch without padding: random ids, each sentence closed by the end token 1."""
    ids = np.random.default_rng(seed).integers(3, vocabulary_size, (2, pairs, length), "int32")
    ids[:, :, -1] = 1
    source, labels = ids
    return source, np.pad(labels[:, :-1], ((0, 0), (1, 0))), labels


def shapes(batches: Sequence[Batch]) -> list[tuple[int, int, int]]:
    """(B, S, T) of each batch."""
    return [(*source.shape, labels.shape[1]) for source, _, labels in batches]


def tokens(batches: Sequence[Batch]) -> int:
    """Return the number of real tokens, source and target together."""
    return int(sum((source != 0).sum() + (labels != 0).sum() for source, _, labels in batches))


def training_flop(options: dict[str, Any], batches: Sequence[Batch]) -> int:
    """Return the counted FLOPs of an update on each batch, padding included: 3 times 2 m n k of a product.

    The same count as `keras_attention.evaluation.cost.training_flops`, without importing a backend
    into the processes of other programs.
    """
    width, inner = options["hidden_dim"], options["intermediate_dim"]

    def attention(queries: int, keys: int) -> int:
        return 4 * width * width * (queries + keys) + 4 * width * queries * keys

    def row(source: int, target: int) -> int:
        layer = attention(source, source) + attention(target, target) + attention(target, source)
        layer += 4 * width * inner * (source + target)
        return options["num_layers"] * layer + 2 * width * options["vocabulary_size"] * target

    return 3 * sum(rows * row(source, target) for rows, source, target in shapes(batches))
