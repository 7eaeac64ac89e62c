"""What all searches share: the three moves of a step, the length penalty, the stopping rules, the result.

Each step makes three moves: `grow_topk` expands the alive hypotheses, `grow_alive` keeps the best that
continue, `grow_finished` keeps the best that have ended.

The functions compute with any arrays: `xp` is their library, `keras.ops` or `engine.numpy.Functions`, which
has NumPy's. This module imports neither Keras nor a backend.

Shape letters: B sentences, W beams, C candidates, L longest hypothesis.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

import numpy as np

from keras_attention.decoding.sampling import Sampling
from keras_attention.engine.base import Beams, SearchOptions

StoppingRule = Literal["best", "n_best", "n_best_2017"]
# The finished hypothesis of a sentence that must be certain; None for what has finished so far.
RANKS = {"best": 0, "n_best": -1, "n_best_2017": None}
# The score of a slot without a hypothesis, in results.
NO_HYPOTHESIS = float("-inf")
# What a search has in its place: tools that search a graph for infinities, such as
# `tf.debugging.enable_check_numerics`, find none. All that is not above the least score counts as none.
EMPTY = -1e30
LEAST_SCORE = -1e20


class Continuations(NamedTuple):
    """The likeliest next tokens of the alive hypotheses, (B, W, C') each."""

    log_probabilities: Any  # float32, best first
    tokens: Any  # int32
    # int32, how far each is with what a constraint waits for; None if it waits for nothing.
    banks: Any = None


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


def first_beams(rows: Any, max_length: Any, rules: SearchRules, xp: Any) -> Beams:
    """Return the beams before the first step: one alive hypothesis, the empty one, and none finished."""
    shape = (rows, rules.beam_size)
    sequences = xp.full((*shape, max_length), rules.pad_token_id, dtype="int32")
    nothing = xp.full(shape, EMPTY, dtype="float32")
    is_first = xp.equal(xp.arange(rules.beam_size), 0)
    alive_scores = xp.where(is_first, xp.zeros_like(nothing), nothing)
    return Beams(sequences, alive_scores, sequences, nothing)


def grow(
    beams: Beams, found: Continuations, index: Any, rules: SearchRules, xp: Any
) -> tuple[Beams, Any, Any]:
    """Make the three moves of a step.

    Returns:
        The new beams, and of each alive hypothesis its last token and the one it continues, (B, W) int32.
    """
    if found.banks is not None:
        most = xp.shape(beams.alive_sequences)[-1]  # No hypothesis has come further.
        banks = xp.minimum(found.banks, most - 1)[..., None]
        found = found._replace(banks=xp.equal(banks, xp.arange(most, dtype="int32")))
    scores, tokens, parents, banks = grow_topk(found, beams.alive_scores, xp)
    is_end = xp.equal(tokens, rules.end_token_id)
    finished = beams.finished_sequences, beams.finished_scores
    if not isinstance(is_end, np.ndarray) or is_end.any():  # Mostly none ends; an array says so.
        sequences = append(select(beams.alive_sequences, parents, xp), tokens, index, xp)
        ended = scores / penalty(xp.cast(index + 1, "float32"), rules.length_penalty, xp)
        ended = xp.where(is_end & exist(scores), ended, EMPTY)
        finished = grow_finished(*finished, sequences, ended, xp)
    alive_scores, kept = grow_alive(scores, is_end, banks, rules.beam_size, xp)
    tokens, parents = (xp.take_along_axis(part, kept, axis=1) for part in (tokens, parents))
    alive = append(select(beams.alive_sequences, parents, xp), tokens, index, xp)
    return Beams(alive, alive_scores, *finished), tokens, parents


def grow_topk(found: Continuations, alive_scores: Any, xp: Any) -> Any:
    """Return the best continuations of all alive hypotheses (B, W).

    There are `num_candidates`, or W * C' if that is less: `scores` (B, C), log-probabilities, descending;
    `tokens`, and `parents`, the continued beams, (B, C), int32; and `banks` (B, C, K), or None. Ties go to
    the lower beam, then to the lower token (PyTorch leaves the order of equal logits open).
    """
    rows, beam_size, width = xp.shape(found.tokens)
    size = beam_size * width
    scores = xp.reshape(found.log_probabilities + alive_scores[:, :, None], (rows, size))
    banks = found.banks
    if banks is not None:
        banks = xp.reshape(banks, (rows, size, banks.shape[-1]))
    scores, order = best_of(scores, min(num_candidates(beam_size), size), banks, xp)
    tokens = xp.take_along_axis(xp.reshape(found.tokens, (rows, size)), order, axis=1)
    banks = None if banks is None else select(banks, order, xp)
    return scores, tokens, xp.floor_divide(order, width), banks


def grow_alive(scores: Any, is_end: Any, banks: Any, beam_size: int, xp: Any) -> tuple[Any, Any]:
    """Return the best candidates (B, C) that have not ended; of `banks` see `best_of`.

    These are `alive_scores` (B, W), `EMPTY` in empty slots, and their places `kept` (B, W), int32.
    """
    return best_of(xp.where(is_end, EMPTY, scores), beam_size, banks, xp)


def best_of(scores: Any, number: int, banks: Any, xp: Any) -> tuple[Any, Any]:
    """Return the best scores of each row, descending, and their places, int32: (B, `number`) each.

    With `banks`, each bank gets the same number of places, as far as it can fill them: first come the best of
    each bank, then the second of each, and so on (dynamic beam allocation: Post and Vilar 2018, arXiv
    1804.06609). Of these the one of the last bank comes first, which is so never lost where there are more
    banks than places, then the best scores. `banks` (B, C, K) are True in the bank of each of the scores
    (B, C), of which perhaps none is above the least score.
    """
    if banks is None:
        scores, kept = xp.top_k(scores, number)
        return scores, xp.cast(kept, "int32")
    _, size, most = banks.shape
    scores, order = xp.top_k(scores, size)
    order = xp.cast(order, "int32")
    there = xp.cast(select(banks, order, xp) & exist(scores)[:, :, None], "int32")
    ranks = xp.sum(there * xp.cumsum(there, axis=1), axis=2)
    bank = xp.sum(there * xp.arange(most, dtype="int32"), axis=2)
    is_behind = xp.cast(bank < xp.max(bank, axis=1, keepdims=True), "int32")
    turns = xp.where(ranks > 0, 2 * ranks + is_behind, 2 * size + 2)
    kept = xp.sort(xp.argsort(turns, axis=1)[:, :number], axis=1)
    return xp.take_along_axis(scores, kept, axis=1), xp.take_along_axis(order, kept, axis=1)


def grow_finished(
    finished_sequences: Any, finished_scores: Any, sequences: Any, scores: Any, xp: Any
) -> tuple[Any, Any]:
    """Return the best of the finished hypotheses (B, W) and of the candidates (B, C) that end now.

    Scores are penalised, descending, and `EMPTY` in empty slots and of candidates that do not end. Ties go to
    the older one.
    """
    sequences = xp.concatenate([finished_sequences, sequences], axis=1)
    scores = xp.concatenate([finished_scores, scores], axis=1)
    scores, kept = xp.top_k(scores, finished_scores.shape[1])
    return select(sequences, xp.cast(kept, "int32"), xp), scores


def append(sequences: Any, tokens: Any, index: Any, xp: Any) -> Any:
    """Return `sequences` (B, C, L) with `tokens` (B, C) at position `index`."""
    if isinstance(sequences, np.ndarray):
        sequences = sequences.copy()
        sequences[:, :, index] = tokens
        return sequences
    here = xp.equal(xp.arange(xp.shape(sequences)[-1], dtype="int32"), index)
    return xp.where(here, tokens[:, :, None], sequences)


def select(values: Any, places: Any, xp: Any) -> Any:
    """Return the rows `places` (B, C) along axis 1 of `values` (B, W, ...), as (B, C, ...)."""
    if isinstance(values, np.ndarray):
        return values[np.arange(len(values))[:, None], places]
    batch_size, num_rows, *rest = xp.shape(values)
    if num_rows == 1 and places.shape[1] == 1:  # greedy: there is nothing to choose
        return values
    first = (xp.arange(batch_size, dtype="int32") * num_rows)[:, None]
    # One gather of whole rows: much faster than take_along_axis, which gathers numbers.
    rows = xp.take(xp.reshape(values, (batch_size * num_rows, *rest)), first + places, axis=0)
    return xp.reshape(rows, (batch_size, places.shape[1], *rest))


def is_decided(rank: Any, beams: Beams, penalties: Any, xp: Any) -> Any:
    """Return (B,) bool: whether the alive hypotheses can no longer change what the stopping rule asks for.

    `rank` is that of the rule, and `penalties` (B,) those of the longest hypotheses allowed. A NaN score
    counts as no hypothesis, so its sentence ends.
    """
    if rank is not None:
        decisive = beams.finished_scores[:, rank]
    else:
        is_there = exist(beams.finished_scores)
        worst = xp.min(xp.where(is_there, beams.finished_scores, -EMPTY), axis=1)
        decisive = xp.where(is_there[:, 0], worst, EMPTY)
    bound = beams.alive_scores[:, 0] / penalties
    return (decisive > bound) | xp.logical_not(exist(bound))


@functools.lru_cache
def search_options(
    stop: str, beam_size: int, length_penalty: float, max_length: int
) -> SearchOptions:
    """Return the rules of a search in NumPy, for an engine that runs the whole search itself."""
    penalties = penalty(np.arange(max_length + 1, dtype="float32"), length_penalty, np)
    penalties.flags.writeable = False  # all searches with these rules share it
    rank = (RANKS[stop] or 0) % beam_size
    return SearchOptions(beam_size, max_length, length_penalty, penalties, rank)


def result(found: Beams, max_lengths: Any, rules: SearchRules, xp: Any) -> BeamSearchResult:
    """Return the finished hypotheses of each sentence, or the alive ones if none has finished.

    `max_lengths` (B,) int32 are the lengths of unfinished hypotheses.
    """
    any_finished = exist(found.finished_scores[:, :1])
    scores = xp.where(any_finished, found.finished_scores, found.alive_scores)
    sequences = xp.where(any_finished[:, :, None], found.finished_sequences, found.alive_sequences)
    size = xp.shape(sequences)[-1]
    places = xp.arange(size, dtype="int32")
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
