"""The search of `beam_search`, over the state of an engine. The beams of a sentence share one buffer.

It has the same three moves and rules, in NumPy on the few numbers of each step. The keys and values, which
are large, stay in the engine's buffer and are never reordered. When beams are reordered, only a mask is: it
says which slots of the buffer are a beam's history. When the buffer is full, slots that are in no beam's
history are dropped: most beams soon share all but their last few tokens. Finished sentences are dropped as
well.

Shape letters: B sentences, W beams, C candidates, L longest hypothesis, P slots of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from keras_attention.decoding.hypotheses import (
    FOUND,
    NO_HYPOTHESIS,
    BeamSearchResult,
    SearchRules,
    is_decided,
    num_candidates,
    penalty,
    result,
)
from keras_attention.engine.base import State

if TYPE_CHECKING:
    from keras_attention.decoding.chosen_steps import ChosenSteps

# Rows that are done are dropped when they are a quarter of all, since doing so copies the others' state.
LARGEST_SELECTED_SHARE = 0.75
# Steps for which there is room in a buffer when it was made, or made room in.
BLOCK = 16


def incremental_search(
    state: State,
    max_lengths: np.ndarray,
    rules: SearchRules,
    stop: str,
    max_length: int,
    chosen: ChosenSteps | None = None,
    made: Callable[[int], None] | None = None,
) -> BeamSearchResult:
    """Search like `beam_search`, with the same results.

    Args:
        state: The state of a new search in an engine, which has encoded the sentences.
        max_lengths: (B,) int, the longest hypothesis allowed for each sentence, EOS included.
        rules: Size of the beam, special tokens and length penalty.
        stop: When a sentence is done; see `beam_search`.
        max_length: L, the size of the results.
        chosen: Chooses tokens from the logits, by a constraint or at random; None for the likeliest.
        made: Is told after each step how many tokens the longest hypotheses have. Defaults to none.

    Returns:
        A `BeamSearchResult` of NumPy arrays.
    """
    limits = np.clip(np.asarray(max_lengths, "int32"), 0, max_length)
    beam_size = rules.beam_size
    width = num_candidates(beam_size)
    beams = _Beams(limits, max_length, rules, state.masked)
    found = {name: getattr(beams, name).copy() for name in FOUND}
    if state.engine.fixed_shapes:
        beams.add_room(max_length)
    tokens = np.full((len(limits), beam_size), rules.start_token_id, "int32")
    for index in range(max_length):
        done = beams.done(stop, index)
        beams.write(found, done & beams.searched)
        beams.searched &= ~done
        left = int(beams.searched.sum())
        if not left:
            break
        size = state.padded_batch_size(left)
        if size <= LARGEST_SELECTED_SHARE * len(tokens):
            rows = _rows_to_keep(beams.searched, size)
            state.select_rows(rows)
            beams.select_rows(rows)
            if chosen is not None:
                chosen.select_rows(rows)
            tokens = tokens[rows]
        if beams.used == beams.history_bias.shape[2]:
            state.compact(beams.compact(), BLOCK * beam_size)
        start = beams.see_own()
        wanted = width if chosen is None else None
        scores, ids = state.step(tokens, index, start, beams.history_bias, wanted)
        if chosen is not None:
            scores, ids = chosen.best(scores, index)
        tokens, parents = beams.grow(scores, ids, index, rules.end_token_id)
        state.reorder(parents)
        if chosen is not None:
            chosen.advance(parents, tokens, index)
        if made is not None:
            made(index + 1)
    beams.write(found, beams.searched)
    return result(found, limits, rules, np)


class _Beams:
    """The hypotheses of the sentences that are still searched."""

    def __init__(
        self,
        limits: np.ndarray,
        max_length: int,
        rules: SearchRules,
        masked: float,
    ):
        rows, beam_size = len(limits), rules.beam_size
        self.beam_size = beam_size
        self.alpha = rules.length_penalty
        self.places = np.arange(rows)  # of the results
        self.searched = np.ones(rows, bool)
        self.limits = limits
        self.alive_scores = np.full((rows, beam_size), NO_HYPOTHESIS, "float32")
        self.alive_scores[:, 0] = 0.0
        self.alive_sequences = np.full((rows, beam_size, max_length), rules.pad_token_id, "int32")
        self.finished_scores = np.full((rows, beam_size), NO_HYPOTHESIS, "float32")
        self.finished_sequences = self.alive_sequences.copy()
        self.masked = masked
        self.used = 0  # slots of the buffer
        self.history_bias = np.empty((rows, beam_size, 0), "float32")

    def select_rows(self, rows: np.ndarray) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[rows])

    def add_room(self, steps: int) -> None:
        """Make room for this many steps after the used slots."""
        rows = len(self.places)
        free = np.full((rows, self.beam_size, steps * self.beam_size), self.masked, "float32")
        self.history_bias = np.concatenate([self.history_bias[:, :, : self.used], free], axis=2)

    def compact(self) -> np.ndarray:
        """Drop the slots that no beam sees; return those (B, P') that stay."""
        is_history = (self.history_bias[:, :, : self.used] == 0.0).any(axis=1)
        number = int(is_history.sum(axis=1).max())
        number += -number % self.beam_size
        # In order; a sentence with fewer slots in use keeps some that no beam sees.
        order = np.argsort(~is_history, axis=1, kind="stable")
        kept = np.sort(order[:, :number], axis=1).astype("int32")
        self.history_bias = np.take_along_axis(self.history_bias, kept[:, None], axis=2)
        self.used = number
        self.add_room(BLOCK)
        return kept

    def see_own(self) -> int:
        """Let each beam see its own slot of a new step; return the first beam's slot."""
        slots, start = np.arange(self.beam_size), self.used
        self.history_bias[:, slots, start + slots] = 0.0
        self.used += self.beam_size
        return start

    def grow(self, scores, ids, index: int, end_token_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Do `grow_topk`, `grow_alive` and `grow_finished`.

        Return the tokens (B, W) to feed next, and the beams (B, W) that they continue.
        """
        rows, beam_size, width = scores.shape
        number = min(num_candidates(beam_size), beam_size * width)
        line = np.arange(rows)[:, None]
        scores = scores + self.alive_scores[:, :, None]
        order = _best_places(scores.reshape(rows, -1), number)
        scores = scores.reshape(rows, -1)[line, order]
        tokens = ids.reshape(rows, -1)[line, order]
        parents = order // width
        is_end = tokens == end_token_id

        ended = np.where(is_end, scores / self._penalty(np.array(index + 1)), NO_HYPOTHESIS)
        self._grow_finished(ended, parents, index, end_token_id)

        scores = np.where(is_end, NO_HYPOTHESIS, scores)
        kept = _best_places(scores, beam_size)
        tokens, parents = tokens[line, kept], parents[line, kept]
        self.alive_scores = scores[line, kept]
        self.alive_sequences = self.alive_sequences[line, parents]
        self.alive_sequences[:, :, index] = tokens
        self.history_bias = self.history_bias[line, parents]
        return tokens, parents

    def _grow_finished(self, ended, parents, index: int, end_token_id: int) -> None:
        if not np.isfinite(ended).any():
            return
        line = np.arange(len(ended))[:, None]
        sequences = self.alive_sequences[line, parents]
        sequences[:, :, index] = end_token_id
        scores = np.concatenate([self.finished_scores, ended], axis=1)
        best = _best_places(scores, self.beam_size)
        self.finished_scores = scores[line, best]
        sequences = np.concatenate([self.finished_sequences, sequences], axis=1)
        self.finished_sequences = sequences[line, best]

    def done(self, stop: str, index: int) -> np.ndarray:
        """Return (B,) bool: whether a sentence is at its limit, or decided by the stopping rule."""
        penalties = self._penalty(self.limits)
        decided = is_decided(stop, self.alive_scores, self.finished_scores, penalties, np)
        return (index >= self.limits) | decided

    def write(self, found: dict[str, np.ndarray], chosen: np.ndarray) -> None:
        """Write what was found for the chosen sentences to their rows of the results."""
        rows = np.flatnonzero(chosen)
        for name, array in found.items():
            array[self.places[rows]] = getattr(self, name)[rows]

    def _penalty(self, lengths: np.ndarray) -> np.ndarray:
        return penalty(lengths.astype("float32"), self.alpha, np)


def _best_places(scores: np.ndarray, number: int) -> np.ndarray:
    """Return the indices of each row's largest scores, descending; ties keep their order, NaN is last."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :number]


def _rows_to_keep(searched: np.ndarray, size: int) -> np.ndarray:
    """Return the rows that are still searched, filled up to `size` with others."""
    return np.sort(np.argsort(~searched, kind="stable")[:size])
