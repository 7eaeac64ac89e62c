"""Chunks of pairs as token ids, from which a token store is written; any process can compute them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention.data.tokenizer import Tokenizer
from keras_attention.utils.sides import encode_side, end_of, target_size_of

# Must not change: with dropout, the random numbers depend on the chunk.
CHUNK_PAIRS = 10_000
SIDES = ("source", "target")
OFFSETS = np.dtype("<i8")


@dataclasses.dataclass(frozen=True)
class TokenChunk:
    """The token ids of a chunk of pairs, without pairs that have an empty side."""

    dropped: int  # number of pairs with an empty side
    # For each side, the ids of all sentences, each followed by the end token.
    ids: dict[str, np.ndarray]
    ends: dict[str, np.ndarray]  # for each side, the end of each sentence in `ids`

    @property
    def pairs(self) -> int:
        """Number of pairs in the chunk."""
        return len(self.ends[SIDES[0]])


def ids_type(tokenizer: Tokenizer) -> np.dtype:
    """Return the dtype of stored ids: two bytes, or four for a large vocabulary."""
    size = max(tokenizer.vocabulary_size, target_size_of(tokenizer))
    return np.dtype("<u2" if size <= 2**16 else "<u4")


def encoded_chunk(
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    position: tuple[int, int],
    settings: Mapping[str, Any],
) -> TokenChunk:
    """Tokenise a chunk of `CHUNK_PAIRS` pairs, or the last ones of a text.

    The position, the numbers of the sample and of the chunk in it, seeds the dropout of the settings.
    """
    sides = [
        encode_side(
            tokenizer,
            [pair[column] for pair in pairs],
            side,
            **_dropout(settings, position, column),
        )
        for column, side in enumerate(SIDES)
    ]
    kept = [pair for pair in zip(*sides, strict=True) if all(pair)]
    ids, ends = {}, {}
    for column, side in enumerate(SIDES):
        rows = [pair[column] for pair in kept]
        ids[side], ends[side] = _joined(rows, end_of(tokenizer, side), ids_type(tokenizer))
    return TokenChunk(len(pairs) - len(kept), ids, ends)


def _joined(
    rows: list[list[int]], end: list[int], dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(row) + len(end) for row in rows], dtype=OFFSETS)
    total = int(ends[-1]) if rows else 0
    ids = np.full(total, end[0] if end else 0, dtype)
    inside = np.ones(total, bool)
    if end:
        inside[ends - 1] = False
    numbers = itertools.chain.from_iterable(rows)
    ids[inside] = np.fromiter(numbers, dtype, total - len(rows) * len(end))
    return ids, ends


def _dropout(settings: Mapping[str, Any], position: tuple[int, int], column: int) -> dict[str, Any]:
    """Return the arguments of `Tokenizer.encode` for one side of a chunk."""
    if "dropout" not in settings:
        return {}
    entropy = [settings["seed"], *position, column]
    seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    return {"dropout": settings["dropout"], "seed": seed}
