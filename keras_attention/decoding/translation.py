"""A `Translation`, and how it is made of what a search finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from keras_attention.decoding.hypotheses import BeamSearchResult


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a sentence, as `Translator.translate` returns it.

    Attributes:
        text: The translation.
        score: Log-probability divided by the length penalty, or not divided if `is_finished` is False. 0
            for an empty line.
        token_ids: The target tokens, without the end token.
        is_finished: Whether the translation ended by itself, before the maximum length.
        alignment: Pairs of a source and a target word, numbered from 0, as `recipes.aligning.with_details`
            adds them; else None. A word is what stands between spaces.
        token_scores: Log-probability of each token, that of the end token behind them; None as above.
        had_loop: Whether the likeliest translation repeated itself, and this was found when that was
            forbidden, or nothing else was found: see `break_loops` of `Translator`.
    """

    text: str
    score: float
    token_ids: tuple[int, ...]
    is_finished: bool
    alignment: tuple[tuple[int, int], ...] | None = None
    token_scores: tuple[float, ...] | None = None
    had_loop: bool = False


def hypotheses_of(
    result: BeamSearchResult, number: int, tokenizer: Any
) -> Iterator[list[Translation]]:
    """Yield the translations in each of the first `number` rows of a result, best first."""
    for row in range(number):
        yield [
            _translation(
                result.sequences[row, k, : result.lengths[row, k]].tolist(),
                float(result.scores[row, k]),
                bool(result.finished[row, k]),
                tokenizer,
            )
            for k in range(result.scores.shape[1])
            if result.lengths[row, k]
        ]


def _translation(
    token_ids: list[int], score: float, is_finished: bool, tokenizer: Any
) -> Translation:
    if is_finished:
        token_ids = token_ids[:-1]
    return Translation(tokenizer.decode(token_ids), score, tuple(token_ids), is_finished)
