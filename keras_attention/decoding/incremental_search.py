"""The beam search of `beam_search`, for decoders whose beams share one buffer of keys and values.

The same three moves and the same rules, in NumPy on the few numbers of each step: what is large, the
model's state, stays with the decoder. Nothing of it is reordered: when beams are, only the mask is that
says which places of the buffer are a beam's own history. Whenever the buffer is full, places in
nobody's history any more are dropped: most beams soon share all but their last few tokens. Sentences
that are done are dropped, too.

Shape letters: B sentences, K beams, C candidates, L the longest hypothesis, P places of the buffer.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from keras_attention.decoding.beam_search import (
    NO_HYPOTHESIS,
    BeamSearchResult,
    check_search_options,
)

# Rows that are done are dropped when they are a quarter of all, where doing so copies the others' state.
LARGEST_KEPT_SHARE = 0.75
# Steps for which there is room in a buffer when it was made, or made room in.
BLOCK = 16


class Decoder(Protocol):
    """A model in the midst of decoding B sentences."""

    masked: float
    fixed_shapes: bool  # whether its buffers are made for the longest hypothesis, once
    keep_copies: bool  # whether `keep` copies what it keeps

    def step(
        self, token_ids: np.ndarray, index: int, start: int, history_bias: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Feeds the tokens (B, K) of position `index`; what beam slot k computes goes to `start + k`.

        `history_bias` (B, K, P) is 0 at places that are a beam's history, its new one included, else
        `masked`. Returns the log-probabilities and ids (B, K, width) of the likeliest next tokens, best
        first; fewer of a smaller vocabulary.
        """

    def make_room(self, places: np.ndarray, room: int) -> None:
        """Moves what is at the places (B, P') to the beginning of buffers with P' + `room` places."""

    def keep(self, rows: np.ndarray) -> None:
        """Goes on with these sentences only."""

    def fitting_rows(self, number: int) -> int:
        """The number of sentences, at least `number`, with which a step is computed."""


def shared_search(
    decoder: Decoder,
    max_lengths: np.ndarray,
    beam_size: int = 4,
    *,
    start_token_id: int,
    end_token_id: int,
    pad_token_id: int = 0,
    length_penalty: float = 0.6,
    stop: str = "best",
    max_length: int | None = None,
) -> BeamSearchResult:
    """Searches as `beam_search` does, and finds what it finds.

    Args:
        decoder: The model, which has read the sentences.
        max_lengths: (B,) int, the longest hypothesis allowed for each sentence, EOS counted.
        beam_size: K.
        start_token_id: Token fed at position 0.
        end_token_id: The EOS token.
        pad_token_id: Filler behind the end of a sequence.
        length_penalty: alpha.
        stop: When a sentence is done; see `beam_search`.
        max_length: L, the size of the results, if not the largest of `max_lengths`.

    Returns:
        A `BeamSearchResult` of NumPy arrays.

    Raises:
        ValueError: As `beam_search` does.
    """
    check_search_options(beam_size, length_penalty, stop)
    if max_length is None:
        max_length = max(1, int(np.max(max_lengths)))
    limits = np.clip(np.asarray(max_lengths, "int32"), 0, max_length)
    width = 2 * beam_size if beam_size > 1 else 1
    result = _no_result(len(limits), beam_size, max_length, pad_token_id)
    beams = _Beams(limits, beam_size, max_length, pad_token_id, length_penalty, decoder.masked)
    if decoder.fixed_shapes:
        beams.add_room(max_length)
    tokens = np.full((len(limits), beam_size), start_token_id, "int32")
    for index in range(max_length):
        done = beams.done(stop, index)
        beams.write(result, done & beams.searched)
        beams.searched &= ~done
        left = int(beams.searched.sum())
        if not left:
            break
        size = decoder.fitting_rows(left)
        most = LARGEST_KEPT_SHARE * len(tokens) if decoder.keep_copies else len(tokens) - 1
        if size <= most:
            rows = _rows_to_keep(beams.searched, size)
            decoder.keep(rows)
            beams.keep(rows)
            tokens = tokens[rows]
        if beams.used == beams.history_bias.shape[2]:
            decoder.make_room(beams.make_room(), BLOCK * beam_size)
        start = beams.see_own()
        scores, ids = decoder.step(tokens, index, start, beams.history_bias, width)
        tokens = beams.grow(scores, ids, index, end_token_id)
    beams.write(result, beams.searched)
    return result


class _Beams:
    """The hypotheses of the sentences that are still searched."""

    def __init__(self, limits, beam_size, max_length, pad_token_id, alpha, masked):
        rows = len(limits)
        self.beam_size = beam_size
        self.alpha = alpha
        self.places = np.arange(rows)  # of the results
        self.searched = np.ones(rows, bool)
        self.limits = limits
        self.alive = np.full((rows, beam_size), NO_HYPOTHESIS, "float32")
        self.alive[:, 0] = 0.0
        self.sequences = np.full((rows, beam_size, max_length), pad_token_id, "int32")
        self.finished = np.full((rows, beam_size), NO_HYPOTHESIS, "float32")
        self.finished_sequences = self.sequences.copy()
        self.finished_lengths = np.zeros((rows, beam_size), "int32")
        self.masked = masked
        self.used = 0  # places of the buffer
        self.history_bias = np.empty((rows, beam_size, 0), "float32")

    def keep(self, rows: np.ndarray) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[rows])

    def add_room(self, steps: int) -> None:
        """Room for so many steps behind what is used."""
        rows = len(self.places)
        free = np.full((rows, self.beam_size, steps * self.beam_size), self.masked, "float32")
        self.history_bias = np.concatenate([self.history_bias[:, :, : self.used], free], axis=2)

    def make_room(self) -> np.ndarray:
        """Drops what is in no beam's history; returns the places (B, P') that stay, each row's as many."""
        is_history = (self.history_bias[:, :, : self.used] == 0.0).any(axis=1)
        number = int(is_history.sum(axis=1).max())
        number += -number % self.beam_size
        # In their order; a sentence with fewer of them keeps some that nobody sees.
        order = np.argsort(~is_history, axis=1, kind="stable")
        kept = np.sort(order[:, :number], axis=1).astype("int32")
        self.history_bias = np.take_along_axis(self.history_bias, kept[:, None], axis=2)
        self.used = number
        self.add_room(BLOCK)
        return kept

    def see_own(self) -> int:
        """Each beam sees its own next place; returns the first beam's."""
        slots, start = np.arange(self.beam_size), self.used
        self.history_bias[:, slots, start + slots] = 0.0
        self.used += self.beam_size
        return start

    def grow(self, scores, ids, index: int, end_token_id: int) -> np.ndarray:
        """`grow_topk`, `grow_alive` and `grow_finished`; the tokens (B, K) to feed next."""
        rows, beam_size, width = scores.shape
        number = min(2 * beam_size if beam_size > 1 else 1, beam_size * width)
        line = np.arange(rows)[:, None]
        scores = scores + self.alive[:, :, None]
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
        self.alive = scores[line, kept]
        self.sequences = self.sequences[line, parents]
        self.sequences[:, :, index] = tokens
        self.history_bias = self.history_bias[line, parents]
        return tokens

    def _grow_finished(self, ended, parents, index: int, end_token_id: int) -> None:
        if not np.isfinite(ended).any():
            return
        line = np.arange(len(ended))[:, None]
        sequences = self.sequences[line, parents]
        sequences[:, :, index] = end_token_id
        scores = np.concatenate([self.finished, ended], axis=1)
        best = _best_places(scores, self.beam_size)
        lengths = np.concatenate([self.finished_lengths, np.full_like(parents, index + 1)], axis=1)
        self.finished = scores[line, best]
        self.finished_lengths = lengths[line, best].astype("int32")
        sequences = np.concatenate([self.finished_sequences, sequences], axis=1)
        self.finished_sequences = sequences[line, best]

    def done(self, stop: str, index: int) -> np.ndarray:
        """(B,) bool: at the limit, or nothing alive can change what the rule asks for.

        A score that is NaN is never finite, so that its sentence ends without a hypothesis.
        """
        bound = self.alive[:, 0] / self._penalty(self.limits)
        if stop == "best":
            decisive = self.finished[:, 0]
        elif stop == "n_best":
            decisive = self.finished[:, -1]
        else:
            some = np.isfinite(self.finished)
            present = np.where(some, self.finished, np.inf).min(axis=1)
            decisive = np.where(some[:, 0], present, NO_HYPOTHESIS)
        return (index >= self.limits) | (decisive > bound) | ~np.isfinite(bound)

    def write(self, result: BeamSearchResult, chosen: np.ndarray) -> None:
        """Enters the hypotheses of the chosen sentences: the finished ones if there are any."""
        for row in np.flatnonzero(chosen):
            place, limit = self.places[row], self.limits[row]
            is_finished = np.isfinite(self.finished[row, 0])
            scores = self.finished[row] if is_finished else self.alive[row]
            sequences = self.finished_sequences[row] if is_finished else self.sequences[row]
            for slot in np.flatnonzero(np.isfinite(scores)):
                length = self.finished_lengths[row, slot] if is_finished else limit
                if length:
                    result.sequences[place, slot, :length] = sequences[slot, :length]
                    result.scores[place, slot] = scores[slot]
                    result.lengths[place, slot] = length
                    result.finished[place, slot] = is_finished

    def _penalty(self, length: np.ndarray) -> np.ndarray:
        """((5 + length) / 6) ** alpha, in float32."""
        base = (np.float32(5.0) + length.astype("float32")) / np.float32(6.0)
        return np.power(base, np.float32(self.alpha))


def _best_places(scores: np.ndarray, number: int) -> np.ndarray:
    """Places of the largest scores of each row, descending; ties go to the first, NaN to the end."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :number]


def _rows_to_keep(searched: np.ndarray, size: int) -> np.ndarray:
    """The rows still searched, filled up to `size` with others."""
    return np.sort(np.argsort(~searched, kind="stable")[:size])


def _no_result(rows: int, beam_size: int, max_length: int, pad_token_id: int) -> BeamSearchResult:
    return BeamSearchResult(
        sequences=np.full((rows, beam_size, max_length), pad_token_id, "int32"),
        scores=np.full((rows, beam_size), NO_HYPOTHESIS, "float32"),
        lengths=np.zeros((rows, beam_size), "int32"),
        finished=np.zeros((rows, beam_size), bool),
    )
