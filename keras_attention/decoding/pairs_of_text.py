"""The pairs of text that drafts learn from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from keras_attention.data.normalization import normalize
from keras_attention.utils.checks import check_has, check_integer
from keras_attention.utils.sides import encode_side, end_of


def encoded_pairs(
    tokenizer: Any, pairs: Iterable[tuple[str, str]], max_pairs: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of the first pairs that have text on both sides, end tokens included.

    Raises:
        ValueError: If an argument is out of range, or there are no pairs.
    """
    check_has("tokenizer", tokenizer, "a Tokenizer", "encode", "vocabulary_size")
    check_integer("max_pairs", max_pairs, 1)
    check_has("pairs", pairs, "pairs (source, target), such as `corpus.train`", "__iter__")
    chosen = [pair for pair in itertools.islice(pairs, max_pairs) if _is_pair(pair)]
    if not chosen:
        raise ValueError("`pairs` must hold pairs (source, target) of text. Received none.")
    sides = []
    for side, texts in zip(("source", "target"), zip(*chosen, strict=True), strict=True):
        end = end_of(tokenizer, side)
        sides.append([[*ids, *end] for ids in encode_side(tokenizer, texts, side)])
    sources, targets = sides
    return sources, targets


def _is_pair(pair: Any) -> bool:
    """Whether it has text on both sides; raise a ValueError if it is no pair of texts."""
    if not isinstance(pair, tuple | list) or [type(text) for text in pair] != [str, str]:
        raise ValueError(
            f"`pairs` must hold pairs (source, target) of text. Received: {pair!r:.60}"
        )
    return all(map(normalize, pair))
