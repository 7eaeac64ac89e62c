"""BPE-dropout: byte-pair encoding that skips each merge with some probability.

SentencePiece can do this as well, but its random numbers differ between processes, whatever the seed.
These come from NumPy, so a run can be repeated.

Shape letters: n words of the same length, w symbols in each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attention.data.symbols import pattern_of

SPACE = "▁"  # marks a space, and so the start of each word


class BpeDropout:
    """Samples segmentations with the merges of a SentencePiece model.

    In each step, the pair of neighbouring symbols with the best score is merged, if its union is in the
    vocabulary. Each new pair of neighbours is excluded with probability `dropout`, as in SentencePiece.

    Reference: [BPE-dropout (Provilkov et al., 2020)](https://arxiv.org/abs/1910.13267).
    """

    def __init__(self, processor: Any, symbols: Sequence[str] = ()) -> None:
        self._processor = processor
        self._whole = {symbol: processor.piece_to_id(symbol) for symbol in symbols}
        self._pattern = pattern_of(symbols)
        ids = {
            processor.id_to_piece(i): i
            for i in range(processor.vocab_size())
            if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))
        }
        self._characters = {piece: i for piece, i in ids.items() if len(piece) == 1}
        self._vocabulary_size = processor.vocab_size()
        merges = {
            ids[piece[:cut]] * self._vocabulary_size + ids[piece[cut:]]: i
            for piece, i in ids.items()
            for cut in range(1, len(piece))
            if piece[:cut] in ids and piece[cut:] in ids
        }
        # -1 is not a pair of any vocabulary: it keeps the table from being empty.
        self._pairs = np.array(sorted(merges) or [-1])
        self._merged = np.array([merges[pair] for pair in sorted(merges)] or [-1])
        self._costs = np.array([-processor.get_score(int(max(i, 0))) for i in self._merged])

    def encode(self, texts: list[str], dropout: float, seed: int) -> list[list[int]]:
        """Ids of each text; the same texts and seed give the same ids everywhere."""
        random = np.random.default_rng(seed % 2**64)
        words = [self._parts(_words(text)) for text in texts]
        flat = list(itertools.chain.from_iterable(words))
        found: list[list[int]] = [[self._whole.get(word, -1)] for word in flat]
        lengths = np.array([0 if word in self._whole else len(word) for word in flat], int)
        for length in np.unique(lengths[lengths > 0]):
            places = np.flatnonzero(lengths == length)
            symbols = self._symbols([flat[place] for place in places])
            self._merge(symbols, places, dropout, random, found)
        pieces = iter(found)
        return [
            list(itertools.chain.from_iterable(itertools.islice(pieces, len(row)))) for row in words
        ]

    def _parts(self, words: list[str]) -> list[str]:
        """Return the words; those with symbols inside in parts."""
        if self._pattern is None:
            return words
        return [part for word in words for part in self._pattern.split(word) if part]

    def _symbols(self, words: list[str]) -> np.ndarray:
        """Return the ids (n, w) of the characters of words; an unknown one is -1 - its code point."""
        points = np.frombuffer("".join(words).encode("utf-32-le"), "<u4").astype("int64")
        distinct, inverse = np.unique(points, return_inverse=True)
        ids = [self._characters.get(chr(point), -1 - point) for point in distinct.tolist()]
        return np.array(ids)[inverse].reshape(len(words), -1)

    def _merge(
        self,
        symbols: np.ndarray,
        places: np.ndarray,
        dropout: float,
        random: np.random.Generator,
        found: list[list[int]],
    ) -> None:
        """Merge the symbols (n, w) of words as far as possible, and write their ids to `found[places]`."""
        # Each unfinished word has one merge per round, so all have the same number of symbols.
        costs, merged = self._looked_up(symbols[:, :-1], symbols[:, 1:], dropout, random)
        while len(symbols):
            rows = np.arange(len(symbols))
            best, goes_on = np.zeros(len(rows), int), np.zeros(len(rows), bool)
            if costs.shape[1]:
                best = costs.argmin(1)
                goes_on = np.isfinite(costs[rows, best])
            for place, row in zip(places[~goes_on], symbols[~goes_on].tolist(), strict=True):
                found[place] = self._with_bytes(row) if min(row) < 0 else row
            symbols, places, best = symbols[goes_on], places[goes_on], best[goes_on]
            costs, merged = costs[goes_on], merged[goes_on]
            rows = rows[: len(symbols)]
            symbols[rows, best] = merged[rows, best]
            symbols, costs, merged = (
                _without(symbols, best + 1), _without(costs, best), _without(merged, best)
            )  # fmt: skip
            for left in (best - 1, best):  # The pairs that contain the new symbol.
                some = rows[(left >= 0) & (left + 1 < symbols.shape[1])]
                left = left[some]
                costs[some, left], merged[some, left] = self._looked_up(
                    symbols[some, left], symbols[some, left + 1], dropout, random
                )

    def _looked_up(
        self, left: np.ndarray, right: np.ndarray, dropout: float, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the cost of merging each pair, infinite if it is impossible or skipped, and the new ids."""
        pairs = np.where((left >= 0) & (right >= 0), left * self._vocabulary_size + right, -2)
        places = np.searchsorted(self._pairs, pairs).clip(max=len(self._pairs) - 1)
        merges = (self._pairs[places] == pairs) & (random.random(pairs.shape) >= dropout)
        return np.where(merges, self._costs[places], np.inf), self._merged[places]

    def _with_bytes(self, row: list[int]) -> list[int]:
        """Return the ids with unknown characters replaced by their UTF-8 bytes."""
        ids = []
        for symbol in row:
            if symbol >= 0:
                ids.append(symbol)
            else:
                content = chr(-1 - symbol).encode("utf-8")
                ids += [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in content]
        return ids


def _words(text: str) -> list[str]:
    """Return the words of a text, each with the mark of the space before it.

    >>> _words("the cat")
    ['▁the', '▁cat']
    """
    if not text:
        return []
    return [SPACE + word for word in text.replace(SPACE, " ").split(" ")]


def _without(array: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return the array (n, w) without one element of each row."""
    kept = np.arange(array.shape[1] - 1) + (np.arange(array.shape[1] - 1) >= column[:, None])
    return np.take_along_axis(array, kept, 1)
