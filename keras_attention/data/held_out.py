"""Held-out parts for a corpus without any, chosen by a hash of each source; and what training has of them."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping

from keras_attention.data.normalization import normalize
from keras_attention.data.parallel_text import Pair
from keras_attention.data.symbols import without_tags

DEFAULT_SHARE = 0.05
DEFAULT_MAXIMUM = 1000
# Characters of a side. What is longer is no sentence: one such line would hold up a search for minutes.
LONGEST = 2000


class SelectedPairs:
    """The pairs of a corpus whose source has a hash in a range."""

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
            elif self._low < source_hash(pair) <= self._high:
                yield pair


def text_hash(*texts: str) -> int:
    """Return a 64-bit number that is the same for texts that differ in nothing but their Unicode form.

    >>> text_hash("M\u00e4nner", "men") == text_hash("Ma\u0308n\u00adner ", "men")
    True
    """
    digest = hashlib.blake2b("\n".join(map(normalize, texts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def source_hash(pair: Pair, sides: int = 1) -> int:
    """Return the hash of a pair's source, or with 2 `sides` of both: tags before the source do not count.

    >>> source_hash(("<2de> a dog", "ein Hund")) == source_hash(("<2fr> a dog", "un chien"))
    True
    """
    return text_hash(without_tags(pair[0]), *pair[1:sides])


def found_in(
    train: Iterable[Pair], parts: Mapping[str, Iterable[Pair]], sides: int = 1
) -> dict[str, dict[str, int]]:
    """Count the different sources (or pairs, with 2 `sides`) of parts, and those that `train` has, too.

    Pairs with an empty side do not count. Memory grows with the parts only.

    >>> found_in([("a dog ", "x")], {"test": [("a dog", "y"), ("a cat", "z")]})
    {'test': {'different': 2, 'trained': 1}}
    """
    wanted = {name: set(_hashes(part, sides)) for name, part in parts.items()}
    found: dict[str, set[int]] = {name: set() for name in wanted}
    if any(wanted.values()):
        for value in _hashes(train, sides):
            for name, values in wanted.items():
                if value in values:
                    found[name].add(value)
    return {
        name: {"different": len(values), "trained": len(found[name])}
        for name, values in wanted.items()
    }


def _hashes(pairs: Iterable[Pair], sides: int) -> Iterator[int]:
    return (source_hash(pair, sides) for pair in pairs if all(map(normalize, pair)))


def hold_out(pairs: Iterable[Pair], sizes: dict[str, int | None]) -> dict[str, SelectedPairs]:
    """Split pairs: those whose sources have the smallest hashes are held out.

    Pairs with an empty side, or one of more than `LONGEST` characters, stay in the training part. All pairs
    with one source go to the same part, also where it is written with other spaces or in another Unicode
    form, or with other tags before it, so that none is both held out and trained on. Memory grows with the
    held-out pairs only.

    Args:
        pairs: Re-iterable of pairs, read once here and again by each part.
        sizes: Number of different sources to hold out for each part; None for 5 %, at most 1,000;
            0 for no such part.

    Returns:
        The parts by name and, if anything is held out, the rest as "train".

    >>> pairs = [(f"line {i}", f"Zeile {i}") for i in range(50)]
    >>> parts = hold_out(pairs, {"validation": 3})
    >>> [len(list(parts[name])) for name in ("validation", "train")]
    [3, 47]
    """
    most = sum(DEFAULT_MAXIMUM if size is None else size for size in sizes.values())
    count, hashes = _smallest_hashes(pairs, most + 1)
    default = min(DEFAULT_MAXIMUM, max(1, int(DEFAULT_SHARE * count)))
    counts = {name: default if size is None else size for name, size in sizes.items()}
    total = sum(counts.values())
    if len(hashes) <= total:
        raise ValueError(
            f"Cannot hold out {total} pairs and keep some for training: the corpus has only "
            f"{len(hashes)} different sources in pairs with text on both sides, and not over {LONGEST:,} "
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
        value = source_hash(pair)
        if value in kept or (len(heap) == number and value > -heap[0]):
            continue
        kept.add(value)
        if len(heap) < number:
            heapq.heappush(heap, -value)  # a heap of negatives has the largest hash on top
        else:
            kept.remove(-heapq.heapreplace(heap, -value))
    return count, sorted(kept)


def _is_unfit(pair: Pair) -> bool:
    return any(not normalize(side) or len(side) > LONGEST for side in pair)
