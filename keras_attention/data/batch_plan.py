"""Which pairs are in which batch: the batches of a pass, in order, and what they hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_attention.data.buckets import BatchShape, round_up

PADDING_ROW = -1
# Of each batch its shape and the indices of its pairs.
Plan: TypeAlias = "list[tuple[BatchShape, np.ndarray]]"


def kept_pairs(lengths: np.ndarray, max_length: int | None) -> np.ndarray:
    """Return the indices of the pairs, of lengths (2, pairs), that are not too long on a side."""
    if max_length is None:
        return np.arange(lengths.shape[1])
    kept = np.flatnonzero((lengths[0] <= max_length) & (lengths[1] <= max_length))
    if not len(kept):
        raise ValueError(
            f"No pair is left: all {lengths.shape[1]} have a side of more than `max_length` "
            f"({max_length}) tokens. Raise `max_length`."
        )
    return kept


def planned_pass(
    shapes: Sequence[BatchShape],
    buckets: Sequence[np.ndarray],
    num_replicas: int,
    random: np.random.Generator | None,
) -> Plan:
    """Return the batches of a pass over the pairs of each bucket, shuffled if there is a generator."""
    plan: Plan = []
    waiting = [[pairs] for pairs in buckets]
    for shape, parts in zip(shapes, waiting, strict=True):
        pairs = np.concatenate(parts)
        if random is not None:
            pairs = random.permutation(pairs)
        whole, rest = np.split(pairs, [len(pairs) // shape.rows * shape.rows])
        plan += [(shape, rows) for rows in whole.reshape(-1, shape.rows)]
        if shape.next is not None:
            waiting[shape.next].append(rest)
        elif len(rest):
            missing = round_up(len(rest), num_replicas) - len(rest)
            plan.append((shape, np.append(rest, np.full(missing, PADDING_ROW))))
    if random is not None:
        plan = [plan[position] for position in random.permutation(len(plan))]
    return plan


def with_varied_start(plan: Plan) -> Plan:
    """Move two batches to the front that differ in S and in T, if there are such batches."""
    lengths = [(shape.source_length, shape.target_length) for shape, _ in plan]
    varied = [axis for axis in (0, 1) if len({length[axis] for length in lengths}) > 1]
    for first, second in itertools.combinations(range(len(plan)), 2):
        if all(lengths[first][axis] != lengths[second][axis] for axis in varied):
            others = [batch for i, batch in enumerate(plan) if i not in (first, second)]
            return [plan[first], plan[second], *others]
    return plan


def statistics_by_shape(plan: Plan, lengths: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """Return what `TokenBatches.shape_statistics` says; lengths are those of sources and targets."""
    counts: dict[tuple[int, int, int], np.ndarray] = {}
    for bucket, pairs in plan:
        shape = len(pairs), bucket.source_length, bucket.target_length
        real = pairs[pairs != PADDING_ROW]
        tokens = [side[real].sum(dtype="int64") for side in lengths]
        batch = np.array([1, len(real), *tokens], "int64")
        counts[shape] = counts.get(shape, 0) + batch
    statistics = []
    for shape in sorted(counts, key=lambda shape: (max(shape[1:]), *shape[1:], shape[0])):
        batches, pairs, source, target = counts[shape].tolist()
        positions = batches * shape[0] * (shape[1] + shape[2])
        statistics.append(
            {
                "shape": shape,
                "batches": batches,
                "pairs": pairs,
                "source_tokens": source,
                "target_tokens": target,
                "padding": 1 - (source + target) / positions,
            }
        )
    return statistics
