"""Which pairs share a batch shape, so that there is little padding, and which a batch; from lengths alone."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

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
    # Cells: the different (source length, target length), int (2, cells), and how many pairs have each.
    cells = np.stack([keys // base, keys % base])
    members = [np.ones(len(counts), bool)]  # of each bucket: its cells
    gain, left = _best_split(cells, counts, batch_tokens, num_replicas)
    splits, best_positions = [(-gain, 0, left)], None
    while True:
        shapes = _shapes(cells, counts, members, batch_tokens, num_replicas)
        positions = sum(_batch_rows(shape, num_replicas) * shape.positions for shape, _ in shapes)
        # A rest that no bucket takes has a shape of its own, unless padding makes it a full batch.
        number = len(shapes) + sum(
            _batch_rows(shape, num_replicas) % shape.rows > 0 for shape, _ in shapes
        )
        if best_positions is None or (number <= max_shapes and positions < best_positions):
            best, best_positions = shapes, positions
        if len(members) == max_shapes or splits[0][0] == 0:
            break
        _, worst, left = heapq.heappop(splits)
        inside = np.flatnonzero(members[worst])
        for position, part in ((worst, left), (len(members), ~left)):
            mask = np.zeros(len(counts), bool)
            mask[inside[part]] = True
            members[position : position + 1] = [mask]
            inner = cells[:, mask], counts[mask]
            gain, half = _best_split(*inner, batch_tokens, num_replicas)
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


def _best_split(
    cells: np.ndarray, counts: np.ndarray, batch_tokens: int, num_replicas: int
) -> tuple[float, np.ndarray]:
    """Find the split, by length on one side, that saves most: return (what it saves, cells below it)."""

    def cost(own: np.ndarray, other: np.ndarray) -> np.ndarray:
        rows = rows_of(np.maximum(own, other), batch_tokens, num_replicas)
        return own + other + batch_tokens / rows

    best = 0.0, np.zeros(len(counts), bool)
    for side in range(2):
        order = np.argsort(cells[side], kind="stable")
        own, other = cells[side][order], cells[1 - side][order]
        # Costs of a row below and above the cut, if it comes after or before each cell.
        below = cost(own, np.maximum.accumulate(other))
        above = cost(own[-1], np.maximum.accumulate(other[::-1])[::-1])
        pairs = np.cumsum(counts[order])
        cuts = np.flatnonzero(own[1:] != own[:-1])
        if not len(cuts):
            continue
        costs = pairs[cuts] * below[cuts] + (pairs[-1] - pairs[cuts]) * above[cuts + 1]
        cut = int(np.argmin(costs))
        saved = float(pairs[-1] * below[-1] - costs[cut])
        if saved > best[0]:
            best = saved, cells[side] <= own[cuts[cut]]
    return best


def rows_of(longest: Any, batch_tokens: int, num_replicas: int) -> Any:
    """Return the rows of a full batch whose longer side has so many positions; an int or an int array."""
    return batch_tokens // longest // num_replicas * num_replicas


def _shapes(
    cells: np.ndarray,
    counts: np.ndarray,
    members: list[np.ndarray],
    batch_tokens: int,
    num_replicas: int,
) -> list[tuple[BatchShape, np.ndarray]]:
    """Return (shape, cells) of each bucket, from short to long; `next` says where its rest goes."""
    buckets = []
    for mask in members:
        source, target = (int(length) for length in cells[:, mask].max(axis=1))
        rows = rows_of(max(source, target), batch_tokens, num_replicas)
        buckets.append((BatchShape(rows, source, target), mask))
    buckets.sort(
        key=lambda item: (max(item[0].source_length, item[0].target_length), item[0].positions)
    )
    waiting = [int(counts[mask].sum()) for _, mask in buckets]
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
