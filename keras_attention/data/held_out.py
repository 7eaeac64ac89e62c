"""Held-out parts for a corpus that has none, chosen by a hash of each pair."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator

from keras_attention.data.parallel_text import Pair
from keras_attention.utils.checks import check_integer

DEFAULT_SHARE = 0.05
DEFAULT_MAXIMUM = 1000
# Characters of a side. What is longer is no sentence: one such line would hold up a search for minutes.
LONGEST = 2000


class SelectedPairs:
    """The pairs of a corpus whose hash is in a range."""

    def __init__(self, pairs: Iterable[Pair], low: int, high: int, keep_unfit: bool) -> None:
        self._pairs, self._low, self._high, self._keep_unfit = pairs, low, high, keep_unfit

    def of(self, pairs: Iterable[Pair]) -> SelectedPairs:
        """Return those of other pairs that are selected in the same way."""
        return SelectedPairs(pairs, self._low, self._high, self._keep_unfit)

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            if _is_unfit(pair):
                if self._keep_unfit:
                    yield pair
            elif self._low < pair_hash(pair) <= self._high:
                yield pair


def pair_hash(pair: Pair) -> int:
    """Return a 64-bit number that depends on the text of both sides alone."""
    digest = hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def hold_out(pairs: Iterable[Pair], sizes: dict[str, int | None]) -> dict[str, SelectedPairs]:
    """Split pairs: those with the smallest hashes are held out.

    Pairs with an empty side, or one of more than `LONGEST` characters, stay in the training part. Equal
    pairs go to the same part, so that none is both held out and trained on. Memory grows with the
    held-out pairs only.

    Args:
        pairs: Re-iterable of pairs, read once here and again by each part.
        sizes: Number of different pairs to hold out for each part; None for 5 %, at most 1,000;
            0 for no such part.

    Returns:
        The parts by name and, if anything is held out, the rest as "train".

    >>> pairs = [(f"line {i}", f"Zeile {i}") for i in range(50)]
    >>> parts = hold_out(pairs, {"validation": 3})
    >>> [len(list(parts[name])) for name in ("validation", "train")]
    [3, 47]
    """
    for name, size in sizes.items():
        if size is not None:
            check_integer(f"{name}_size", size, 0)
    most = sum(DEFAULT_MAXIMUM if size is None else size for size in sizes.values())
    count, hashes = _smallest_hashes(pairs, most + 1)
    default = min(DEFAULT_MAXIMUM, max(1, int(DEFAULT_SHARE * count)))
    counts = {name: default if size is None else size for name, size in sizes.items()}
    total = sum(counts.values())
    if len(hashes) <= total:
        raise ValueError(
            f"Cannot hold out {total} pairs and keep some for training: the corpus has only "
            f"{len(hashes)} different pairs that have text on both sides, and not over {LONGEST:,} "
            "characters there. Hold out fewer (validation_size, test_size) or name files for validation "
            "and test."
        )
    parts = {}
    start, low = 0, -1
    for name, size in counts.items():
        if size:
            start += size
            high = hashes[start - 1]
            parts[name] = SelectedPairs(pairs, low, high, keep_unfit=False)
            low = high
    if parts:
        parts["train"] = SelectedPairs(pairs, low, 2**64, keep_unfit=True)
    return parts


def _smallest_hashes(pairs: Iterable[Pair], number: int) -> tuple[int, list[int]]:
    """How many pairs may be held out, and their smallest different hashes, ascending."""
    count = 0
    kept: set[int] = set()
    heap: list[int] = []
    for pair in pairs:
        if _is_unfit(pair):
            continue
        count += 1
        value = pair_hash(pair)
        if value in kept or (len(heap) == number and value > -heap[0]):
            continue
        kept.add(value)
        if len(heap) < number:
            heapq.heappush(heap, -value)  # a heap of negatives has the largest hash on top
        else:
            kept.remove(-heapq.heapreplace(heap, -value))
    return count, sorted(kept)


def _is_unfit(pair: Pair) -> bool:
    return any(not side.strip() or len(side) > LONGEST for side in pair)
