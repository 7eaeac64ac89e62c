"""The search of `beam_search`, over the state of an engine. The beams of a sentence share one buffer.

It makes the same moves, in NumPy on the few numbers of each step. The keys and values, which are large, stay
in the engine's buffer and are never reordered. When beams are reordered, only a mask is: it
says which slots of the buffer are a beam's history. When the buffer is full, slots that are in no beam's
history are dropped: most beams soon share all but their last few tokens. Finished sentences are dropped as
well.

Shape letters: B sentences, W beams, L longest hypothesis, P slots of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from keras_attention.decoding.hypotheses import (
    RANKS,
    BeamSearchResult,
    Continuations,
    SearchRules,
    first_beams,
    grow,
    is_decided,
    num_candidates,
    penalty,
    result,
    select,
)
from keras_attention.engine.base import Beams, State
from keras_attention.engine.numpy import Functions

if TYPE_CHECKING:
    from keras_attention.decoding.compiled_search import ChosenSteps

xp = Functions()
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
    """Search like `beam_search`, with the same results, as NumPy arrays.

    `state` is that of a new search in an engine, which has encoded the sentences; `max_lengths` (B,) are the
    longest hypotheses allowed, EOS included, and `max_length` L is the size of the results. `chosen` chooses
    tokens from the logits, by a constraint or at random; None is for the likeliest. `made` is told after each
    step how many tokens the longest hypotheses have.
    """
    limits = np.clip(np.asarray(max_lengths, "int32"), 0, max_length)
    width = num_candidates(rules.beam_size)
    rows = _Rows(limits, max_length, rules, state.masked)
    found = Beams(*(part.copy() for part in rows.beams))
    if state.engine.fixed_shapes:
        rows.add_room(max_length)
    tokens = np.full((len(limits), rules.beam_size), rules.start_token_id, "int32")
    for index in range(max_length):
        done = rows.done(RANKS[stop], index)
        rows.write(found, done & rows.searched)
        rows.searched &= ~done
        left = int(rows.searched.sum())
        if not left:
            break
        size = state.padded_batch_size(left)
        if size <= LARGEST_SELECTED_SHARE * len(tokens):
            # Filled up to the size with others.
            kept = np.sort(np.argsort(~rows.searched, kind="stable")[:size])
            state.select_rows(kept)
            rows.select_rows(kept)
            if chosen is not None:
                chosen.select_rows(kept)
            tokens = tokens[kept]
        if rows.used == rows.history_bias.shape[2]:
            state.compact(rows.compact(), BLOCK * rules.beam_size)
        start = rows.see_own()
        wanted = width if chosen is None else None
        scores, ids = state.step(tokens, index, start, rows.history_bias, wanted)
        best = Continuations(scores, ids) if chosen is None else chosen.best(scores, index)
        rows.beams, tokens, parents = grow(rows.beams, best, index, rules, xp)
        rows.history_bias = select(rows.history_bias, parents, xp)
        state.reorder(parents)
        if chosen is not None:
            chosen.advance(parents, tokens, index)
        if made is not None:
            made(index + 1)
    rows.write(found, rows.searched)
    return result(found, limits, rules, np)


class _Rows:
    """The sentences that are still searched, and which slots of the buffer their beams see."""

    def __init__(self, limits: np.ndarray, max_length: int, rules: SearchRules, masked: float):
        self.beam_size = rules.beam_size
        self.places = np.arange(len(limits))  # of the results
        self.searched = np.ones(len(limits), bool)
        self.limits = limits
        self.penalties = penalty(limits.astype("float32"), rules.length_penalty, np)
        self.beams = first_beams(len(limits), max_length, rules, xp)
        self.masked = masked
        self.used = 0  # slots of the buffer
        self.history_bias = np.empty((len(limits), self.beam_size, 0), "float32")

    def select_rows(self, rows: np.ndarray) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[rows])
        self.beams = Beams(*(part[rows] for part in self.beams))

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

    def done(self, rank: int | None, index: int) -> np.ndarray:
        """Return (B,) bool: whether a sentence is at its limit, or decided by the stopping rule."""
        return (index >= self.limits) | is_decided(rank, self.beams, self.penalties, np)

    def write(self, found: Beams, chosen: np.ndarray) -> None:
        """Write what was found for the chosen sentences to their rows of the results."""
        rows = np.flatnonzero(chosen)
        for results, part in zip(found, self.beams, strict=True):
            results[self.places[rows]] = part[rows]
