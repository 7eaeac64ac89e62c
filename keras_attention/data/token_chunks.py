"""Some pairs as token ids: what a token store is made of, wherever it is computed."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention.data.tokenizer import Tokenizer

# Fixed: with dropout, each chunk has random numbers of its own.
CHUNK_PAIRS = 10_000
SIDES = ("source", "target")
OFFSETS = np.dtype("<i8")


@dataclasses.dataclass(frozen=True)
class TokenChunk:
    """The pairs of a chunk without those that have an empty side.

    Attributes:
        dropped: Pairs with an empty side.
        ids: For each side the ids of all sentences, each closed by the end token.
        ends: For each side where the sentences end in it.
    """

    dropped: int
    ids: dict[str, np.ndarray]
    ends: dict[str, np.ndarray]

    @property
    def pairs(self) -> int:
        """Pairs that are left."""
        return len(self.ends[SIDES[0]])

    def packed(self) -> bytes:
        """All of it as bytes."""
        sizes = [self.dropped, self.pairs, len(self.ids[SIDES[0]])]
        arrays = [np.array(sizes, OFFSETS), *self.ends.values(), *self.ids.values()]
        return b"".join(array.tobytes() for array in arrays)

    @classmethod
    def unpacked(cls, content: bytes, dtype: np.dtype) -> TokenChunk:
        """What `packed` gave, of ids of this type.

        >>> ends = {side: np.array([2, 4], OFFSETS) for side in SIDES}
        >>> ids = {side: np.array([7, 2, 8, 2], "<u2") for side in SIDES}
        >>> TokenChunk.unpacked(TokenChunk(1, ids, ends).packed(), np.dtype("<u2")).ids["target"].tolist()
        [7, 2, 8, 2]
        """
        header = 3 * OFFSETS.itemsize
        dropped, pairs, tokens = np.frombuffer(content[:header], OFFSETS).tolist()
        middle = header + 2 * pairs * OFFSETS.itemsize
        ends = np.split(np.frombuffer(content[header:middle], OFFSETS), [pairs])
        ids = np.split(np.frombuffer(content[middle:], dtype), [tokens])
        return cls(dropped, *(dict(zip(SIDES, part, strict=True)) for part in (ids, ends)))


def ids_type(tokenizer: Tokenizer) -> np.dtype:
    """Two bytes, or four if the vocabulary needs it."""
    return np.dtype("<u2" if tokenizer.vocabulary_size <= 2**16 else "<u4")


def encoded_chunk(
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    position: tuple[int, int],
    sampling: Mapping[str, Any],
) -> TokenChunk:
    """The ids of some pairs.

    Args:
        tokenizer: For both sides.
        pairs: `CHUNK_PAIRS` of them, or the last ones of a text.
        position: The sample and the chunk's number in it: what the random numbers of dropout hang on.
        sampling: `dropout` and `seed`, or nothing.
    """
    sides = [
        tokenizer.encode([pair[column] for pair in pairs], **_dropout(sampling, position, column))
        for column in range(2)
    ]
    kept = [pair for pair in zip(*sides, strict=True) if all(pair)]
    ids, ends = {}, {}
    for column, side in enumerate(SIDES):
        rows = [pair[column] for pair in kept]
        ids[side], ends[side] = _joined(rows, tokenizer.end_token_id, ids_type(tokenizer))
    return TokenChunk(len(pairs) - len(kept), ids, ends)


def _joined(
    rows: list[list[int]], end_token_id: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(row) + 1 for row in rows], dtype=OFFSETS)
    total = int(ends[-1]) if rows else 0
    ids = np.full(total, end_token_id, dtype)
    inside = np.ones(total, bool)
    inside[ends - 1] = False
    ids[inside] = np.fromiter(itertools.chain.from_iterable(rows), dtype, total - len(rows))
    return ids, ends


def _dropout(sampling: Mapping[str, Any], position: tuple[int, int], column: int) -> dict[str, Any]:
    """Arguments of `Tokenizer.encode` for a side of a chunk."""
    if not sampling:
        return {}
    entropy = [sampling["seed"], *position, column]
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    return {"dropout": sampling["dropout"], "seed": seed}
