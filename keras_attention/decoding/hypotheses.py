"""What all searches share: the length penalty, the stopping rules, and the result.

The functions compute with any arrays: `xp` is their library, `numpy` or `keras.ops`. This module imports
neither Keras nor a backend.

Shape letters: B sentences, W beams, L longest hypothesis.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from keras_attention.decoding.sampling import Sampling
from keras_attention.engine.base import SearchOptions

# The arrays in which a search keeps what it has found.
FOUND = ("alive_sequences", "alive_scores", "finished_sequences", "finished_scores")
StoppingRule = Literal["best", "n_best", "n_best_2017"]
# The score of a slot without a hypothesis; sums and penalties do not change it.
NO_HYPOTHESIS = float("-inf")
# What the plain search has in its place: tools that search a graph for infinities, such as
# `tf.debugging.enable_check_numerics`, find none. All that is not above the least score counts as none.
EMPTY = -1e30
LEAST_SCORE = -1e20


class BeamSearchResult(NamedTuple):
    """The hypotheses of every sentence, best first.

    If no hypothesis of a sentence has ended, its unfinished ones are returned, with their plain
    log-probabilities as scores. A slot without a hypothesis has score `-inf` and length 0.
    """

    sequences: Any  # (B, W, L) int32, EOS included, then `pad_token_id`
    scores: Any  # (B, W) float32, log-probability / length penalty; descending
    lengths: Any  # (B, W) int32, EOS included
    finished: Any  # (B, W) bool, True if the hypothesis ends with EOS


class SearchRules(NamedTuple):
    """What the searches of a `Translator` have in common; see `beam_search`."""

    beam_size: int  # 1 with `sampling`
    start_token_id: int
    end_token_id: int
    pad_token_id: int
    length_penalty: float
    sampling: Sampling | None = None  # whether tokens are drawn, in place of the likeliest
    are_scores: bool = False  # whether logits are scores already, and not normalised


def num_candidates(beam_size: int) -> int:
    """Return how many continuations of a sentence a step considers.

    It is twice the beam size, so that enough continue even if half of them end. It is one for greedy
    search, which must not end at a token that is only second best.
    """
    return 2 * beam_size if beam_size > 1 else 1


def penalty(lengths: Any, alpha: float, xp: Any) -> Any:
    """`((5 + length) / 6) ** alpha` of float32 lengths (Wu et al. 2016, equation 14)."""
    return xp.power((5.0 + lengths) / 6.0, alpha)


def exist(scores: Any) -> Any:
    """Return whether there is a hypothesis in each slot; NaN counts as none."""
    return scores > LEAST_SCORE


def is_decided(stop: str, alive_scores: Any, finished_scores: Any, penalties: Any, xp: Any) -> Any:
    """Return (B,) bool: whether the alive hypotheses can no longer change what the stopping rule asks for.

    A NaN score counts as no hypothesis, so its sentence ends.

    Args:
        stop: As of `beam_search`.
        alive_scores: (B, W) log-probabilities, descending, `-inf` or `EMPTY` in empty slots.
        finished_scores: (B, W) penalised scores, descending, the same in empty slots.
        penalties: (B,) penalty of the longest hypothesis allowed.
        xp: The library of the arrays.
    """
    if stop != "n_best_2017":
        decisive = finished_scores[:, decisive_slot(stop, finished_scores.shape[1])]
    else:
        is_there = exist(finished_scores)
        worst = xp.min(xp.where(is_there, finished_scores, -EMPTY), axis=1)
        decisive = xp.where(is_there[:, 0], worst, EMPTY)
    return is_beyond_reach(decisive, alive_scores, penalties, xp)


def is_beyond_reach(decisive: Any, alive_scores: Any, penalties: Any, xp: Any) -> Any:
    """Return (B,) bool: whether no alive hypothesis (B, W) can still come before the decisive scores (B,)."""
    bound = alive_scores[:, 0] / penalties
    return (decisive > bound) | xp.logical_not(exist(bound))


def decisive_slot(stop: str, beam_size: int) -> int:
    """Return the rank of the finished hypothesis that "best" or "n_best" waits for."""
    return {"best": 0, "n_best": beam_size - 1}[stop]


@functools.lru_cache
def search_options(
    stop: str, beam_size: int, length_penalty: float, max_length: int
) -> SearchOptions:
    """Return the rules of a search in NumPy, for an engine that runs the whole search itself."""
    penalties = penalty(np.arange(max_length + 1, dtype="float32"), length_penalty, np)
    penalties.flags.writeable = False  # all searches with these rules share it
    decisive = decisive_slot(stop, beam_size)
    return SearchOptions(beam_size, max_length, length_penalty, penalties, decisive)


def result(
    found: Mapping[str, Any], max_lengths: Any, rules: SearchRules, xp: Any
) -> BeamSearchResult:
    """Return the finished hypotheses of each sentence, or the alive ones if none has finished.

    Args:
        found: `alive_sequences` (B, W, L) int32 with `alive_scores` (B, W), their log-probabilities, and
            `finished_sequences` with `finished_scores`, which are penalised; empty slots have the score
            `-inf` or `EMPTY`.
        max_lengths: (B,) int32, the length of unfinished hypotheses.
        rules: The rules of the search.
        xp: The library of the arrays.
    """
    any_finished = exist(found["finished_scores"][:, :1])
    scores = xp.where(any_finished, found["finished_scores"], found["alive_scores"])
    sequences = xp.where(
        any_finished[:, :, None], found["finished_sequences"], found["alive_sequences"]
    )
    places, size = xp.arange(sequences.shape[-1], dtype="int32"), sequences.shape[-1]
    ends = xp.min(xp.where(sequences == rules.end_token_id, places, size), axis=-1) + 1
    lengths = xp.where(any_finished, ends, max_lengths[:, None])
    # Empty slots, and sentences that were not searched at all.
    exists = exist(scores) & (lengths > 0)
    lengths = xp.where(exists, lengths, 0)
    inside = places < lengths[:, :, None]
    return BeamSearchResult(
        sequences=xp.where(inside, sequences, rules.pad_token_id),
        scores=xp.where(exists, scores, NO_HYPOTHESIS),
        lengths=lengths,
        finished=exists & any_finished,
    )
