"""Chooses which pairs share a batch shape, from their lengths alone: few shapes, little padding."""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any

import numpy as np

MOST_COUNTED = 1 << 24  # distinct values to count in a table


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """The shape of all full batches of a bucket, and how the pairs of the bucket fill them."""

    rows: int
    source_length: int
    target_length: int
    next: int | None = None  # bucket that takes the pairs that do not fill a batch
    whole: int = 0  # full batches per epoch
    rest: int = 0  # pairs left over per epoch

    @property
    def positions(self) -> int:
        """Number of positions of a row, on both sides together."""
        return self.source_length + self.target_length


@dataclasses.dataclass(frozen=True)
class Cells:
    """The distinct (source length, target length) of a corpus and how many pairs have them."""

    lengths: np.ndarray  # int64 (2, cells)
    counts: np.ndarray  # int64 (cells,)

    def take(self, mask: np.ndarray) -> Cells:
        """Return the cells where `mask` is True."""
        return Cells(self.lengths[:, mask], self.counts[mask])


def choose_buckets(
    lengths: np.ndarray, batch_tokens: int, num_replicas: int, max_shapes: int
) -> tuple[list[BatchShape], np.ndarray]:
    """Sort pairs into buckets by source and target length, so that there is little padding.

    Starts with one bucket. Each step splits the bucket that gains most, at the length (on either side)
    that saves most: positions, and shares of a batch, so that batches are full although their rows are
    rounded down to a multiple. More buckets need less padding but leave more incomplete batches. The
    result is the step with the fewest positions, those of incomplete batches included. The lengths are an int
    array (2, pairs), of source and target.

    Returns:
        The buckets, from short to long, and the bucket of each pair, int array (pairs,).
    """
    base = int(lengths.max()) + 1
    keys, cell_of_pair, counts = _counted(lengths[0].astype("int64") * base + lengths[1], base**2)
    cells = Cells(np.stack([keys // base, keys % base]), counts)
    members = [np.ones(len(counts), bool)]  # of each bucket: its cells
    splits = [(-gain, 0, left) for gain, left in [_best_split(cells, batch_tokens, num_replicas)]]
    best, best_positions = _shapes(cells, members, batch_tokens, num_replicas), None
    while True:
        shapes = _shapes(cells, members, batch_tokens, num_replicas)
        positions = sum(_batch_rows(shape, num_replicas) * shape.positions for shape, _ in shapes)
        # A rest that no bucket takes has a shape of its own, unless padding makes it a full batch.
        number = len(shapes) + sum(
            _batch_rows(shape, num_replicas) % shape.rows > 0 for shape, _ in shapes
        )
        if number <= max_shapes and (best_positions is None or positions < best_positions):
            best, best_positions = shapes, positions
        if len(members) == max_shapes or splits[0][0] == 0:
            break
        _, worst, left = heapq.heappop(splits)
        inside = np.flatnonzero(members[worst])
        for position, part in ((worst, left), (len(members), ~left)):
            mask = np.zeros(len(counts), bool)
            mask[inside[part]] = True
            members[position : position + 1] = [mask]
            gain, half = _best_split(cells.take(mask), batch_tokens, num_replicas)
            heapq.heappush(splits, (-gain, position, half))
    bucket_of_cell = np.zeros(len(counts), "int16")
    for bucket, (_, mask) in enumerate(best):
        bucket_of_cell[mask] = bucket
    return [shape for shape, _ in best], bucket_of_cell[cell_of_pair]


def _counted(values: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct values, ascending, the position of each value among them, and their counts."""
    if bound > MOST_COUNTED:
        return np.unique(values, return_inverse=True, return_counts=True)
    counts = np.bincount(values, minlength=bound)  # many times faster than sorting all pairs
    keys = np.flatnonzero(counts)
    position = np.zeros(bound, "int32")
    position[keys] = np.arange(len(keys))
    return keys, position[values], counts[keys]


def round_up(number, multiple: int):
    """Round an int or an int array up to the next multiple."""
    return -(-number // multiple) * multiple


def _best_split(cells: Cells, batch_tokens: int, num_replicas: int) -> tuple[float, np.ndarray]:
    """Find the split, by length on one side, that saves most: return (what it saves, cells below it)."""

    def cost(own: np.ndarray, other: np.ndarray) -> np.ndarray:
        rows = rows_of(np.maximum(own, other), batch_tokens, num_replicas)
        return own + other + batch_tokens / rows

    best = 0.0, np.zeros(len(cells.counts), bool)
    for side in range(2):
        order = np.argsort(cells.lengths[side], kind="stable")
        own, other = cells.lengths[side][order], cells.lengths[1 - side][order]
        # Costs of a row below and above the cut, if it comes after or before each cell.
        below = cost(own, np.maximum.accumulate(other))
        above = cost(own[-1], np.maximum.accumulate(other[::-1])[::-1])
        pairs = np.cumsum(cells.counts[order])
        cuts = np.flatnonzero(own[1:] != own[:-1])
        if not len(cuts):
            continue
        costs = pairs[cuts] * below[cuts] + (pairs[-1] - pairs[cuts]) * above[cuts + 1]
        cut = int(np.argmin(costs))
        saved = float(pairs[-1] * below[-1] - costs[cut])
        if saved > best[0]:
            best = saved, cells.lengths[side] <= own[cuts[cut]]
    return best


def rows_of(longest: Any, batch_tokens: int, num_replicas: int) -> Any:
    """Return the rows of a full batch whose longer side has so many positions; an int or an int array."""
    return batch_tokens // longest // num_replicas * num_replicas


def _shapes(
    cells: Cells, members: list[np.ndarray], batch_tokens: int, num_replicas: int
) -> list[tuple[BatchShape, np.ndarray]]:
    """Return (shape, cells) of each bucket, from short to long; `next` says where its rest goes."""
    buckets = []
    for mask in members:
        source, target = (int(length) for length in cells.lengths[:, mask].max(axis=1))
        rows = rows_of(max(source, target), batch_tokens, num_replicas)
        buckets.append((BatchShape(rows, source, target), mask))
    buckets.sort(
        key=lambda item: (max(item[0].source_length, item[0].target_length), item[0].positions)
    )
    waiting = [int(cells.counts[mask].sum()) for _, mask in buckets]
    for index, (shape, mask) in enumerate(buckets):
        whole, rest = divmod(waiting[index], shape.rows)
        following = _smallest_with_room(shape, index, buckets)
        if following is not None:
            waiting[following] += rest
        shape = dataclasses.replace(shape, next=following, whole=whole, rest=rest)
        buckets[index] = shape, mask
    return buckets


def _smallest_with_room(
    shape: BatchShape, index: int, buckets: list[tuple[BatchShape, np.ndarray]]
) -> int | None:
    room = [
        (later.positions, position)
        for position, (later, _) in enumerate(buckets)
        if position > index
        and later.source_length >= shape.source_length
        and later.target_length >= shape.target_length
    ]
    return min(room)[1] if room else None


def _batch_rows(shape: BatchShape, num_replicas: int) -> int:
    """Return the rows of all batches of a bucket in an epoch, rows of padding included."""
    rest = round_up(shape.rest, num_replicas) if shape.next is None else 0
    return shape.whole * shape.rows + rest
