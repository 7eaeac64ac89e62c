"""Held-out parts for a corpus that has none, chosen by a hash of each pair."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator

from keras_attention.data.parallel_text import Pair
from keras_attention.utils.checks import check_integer

DEFAULT_SHARE = 0.05
DEFAULT_MAXIMUM = 1000


class SelectedPairs:
    """The pairs of a corpus whose hash is in a range.

    Args:
        pairs: Re-iterable of pairs.
        low, high: Range low < hash <= high.
        keep_blank: Keep pairs with an empty side, whatever their hash; else drop them.
    """

    def __init__(self, pairs: Iterable[Pair], low: int, high: int, keep_blank: bool) -> None:
        self._pairs, self._low, self._high, self._keep_blank = pairs, low, high, keep_blank

    def __iter__(self) -> Iterator[Pair]:
        for pair in self._pairs:
            if _is_blank(pair):
                if self._keep_blank:
                    yield pair
            elif self._low < pair_hash(pair) <= self._high:
                yield pair


def pair_hash(pair: Pair) -> int:
    """A 64-bit number that depends on the text of both sides alone."""
    digest = hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def hold_out(pairs: Iterable[Pair], sizes: dict[str, int | None]) -> dict[str, SelectedPairs]:
    """Splits pairs: those with the smallest hashes are held out.

    Equal pairs go to the same part, so that none is both held out and trained on. Memory grows with
    the held-out pairs only.

    Args:
        pairs: Re-iterable of pairs, read once here and again by each part.
        sizes: Number of different pairs to hold out for each part; None for 5 %, at most 1,000;
            0 for no such part.

    Returns:
        The parts by name and, if anything is held out, the rest as "train".

    Raises:
        ValueError: A negative size; too few pairs.

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
            f"{len(hashes)} different pairs without an empty side. Hold out fewer "
            "(validation_size, test_size) or name files for validation and test."
        )
    parts = {}
    start, low = 0, -1
    for name, size in counts.items():
        if size:
            start += size
            high = hashes[start - 1]
            parts[name] = SelectedPairs(pairs, low, high, keep_blank=False)
            low = high
    if parts:
        parts["train"] = SelectedPairs(pairs, low, 2**64, keep_blank=True)
    return parts


def _smallest_hashes(pairs: Iterable[Pair], number: int) -> tuple[int, list[int]]:
    """How many pairs have no empty side, and their smallest different hashes, ascending."""
    count = 0
    kept: set[int] = set()
    heap: list[int] = []
    for pair in pairs:
        if _is_blank(pair):
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


def _is_blank(pair: Pair) -> bool:
    return not pair[0].strip() or not pair[1].strip()
