"""Byte-pair encoding by SentencePiece, for `Tokenizer(algorithm="bpe")`, and dropout of its merges.

Shape letters: n words of the same length, w symbols in each.
"""

from __future__ import annotations

import functools
import io
import itertools
import random
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_attention.data.presegmented import SIDES, Pieces
from keras_attention.data.symbols import pattern_of

# SentencePiece skips longer lines (bytes), and lines with the letter that it writes for unknown ones.
LONGEST_LINE = 4192
MOST_CHARACTERS = LONGEST_LINE // 4  # of at most 4 bytes each
RESERVED = "\u2585"
# No option may drop or change text. What is left at its default decides only where pieces may end: at white
# space, between scripts and at numbers, after at most 16 characters; "▁" is put before the first word, too.
TRAINER: dict[str, Any] = {
    "model_type": "bpe",
    "hard_vocab_limit": False,  # A small corpus gives a smaller vocabulary, not an error.
    "byte_fallback": True,  # Characters below `character_coverage` are written as bytes: none is lost.
    "normalization_rule_name": "identity",  # Others rewrite letters.
    "remove_extra_whitespaces": False,  # Done by `normalize`.
    "max_sentence_length": LONGEST_LINE,  # `_lines` cuts longer ones: memory stays bounded.
    "input_sentence_size": 0,  # All lines: `_sampled` has drawn them.
    "num_threads": 1,  # It is written into the model, so it must not vary.
    # Warnings would tell of skipped lines, of which there are none, and of a vocabulary that stays smaller
    # than asked, which `Tokenizer.train` documents.
    "minloglevel": 2,
}
# A text that models with another normalisation, or other marks of words, split in another way.
TELLING = "The \ufb01rst \u2460"
# SentencePiece starts threads anew for each list. For so many sentences of usual length they are no faster.
FEW_ROWS = 256


class SentencePieces(Pieces):
    """A SentencePiece model; text must be normalised already.

    In those of `train`, characters outside the vocabulary are written as their UTF-8 bytes, so nothing is
    unknown.
    """

    def __init__(self, model: bytes) -> None:
        self._processor, self._names = opened(model)
        self.names = dict.fromkeys(SIDES, self._names)
        ids = {"pad_id": self._processor.pad_id(), "eos_id": self._processor.eos_id()}
        if lacking := [name for name, token_id in ids.items() if token_id < 0]:
            raise ValueError(
                f"`model` is a SentencePiece model without {' and '.join(lacking)}: a Transformer needs a "
                "padding piece and one for the end of a sentence. Train it with `--pad_id=0 --eos_id=1 "
                "--unk_id=2 --bos_id=-1`, or with `Tokenizer.train`."
            )
        pad, end = ids.values()
        self.ids = {"pad_token_id": pad, "start_token_id": pad, "end_token_id": end}
        self.ids["unknown_token_id"] = self._processor.unk_id()

    @staticmethod
    def train(
        sentences: Iterable[str], vocabulary_size: int, max_sentences: int, **options: Any
    ) -> bytes:
        """Learn merges from at most `max_sentences`, and return the model; options go to SentencePiece."""
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_sampled(_lines(sentences), max_sentences),
                model_writer=model,
                vocab_size=vocabulary_size,
                **TRAINER,
                **options,
            )
        except RuntimeError as error:
            raise ValueError(
                f"SentencePiece learned no vocabulary of {vocabulary_size} ids. It needs 3 special "
                "ids, 256 bytes and an id for each character: raise `vocabulary_size`, or lower "
                f"`character_coverage`. ({error})"
            ) from error
        return model.getvalue()

    @functools.cached_property
    def symbols(self) -> tuple[str, ...]:  # type: ignore[override]
        """The user's own symbols, which SentencePiece puts between the special ids and the bytes."""
        known = self._processor
        first_byte = next((i for i in range(len(self._names)) if known.is_byte(i)), 0)
        ids = (i for i in range(first_byte) if not (known.is_control(i) or known.is_unknown(i)))
        return tuple(self._names[i] for i in ids)

    def encode(self, texts: list[str], side: str = "source") -> list[list[int]]:
        return encoded(self._processor, texts, int)

    @functools.cached_property
    def dropout(self) -> BpeDropout:
        """What encodes with merges that are skipped."""
        known, ids = self._processor, range(len(self._names))
        # Scores of BPE are ranks, those of other models logarithms.
        is_ranked = all(known.get_score(i).is_integer() for i in ids)
        if is_ranked and any(map(known.is_byte, ids)):
            found = BpeDropout(self._processor, self.symbols)
            if found.encode([TELLING], 0.0, 0) == self.encode([TELLING]):
                return found
        raise ValueError(
            "`dropout` needs a model of BPE, with bytes for unknown characters, that rewrites no letters and "
            "marks the beginnings of words, such as `Tokenizer.train` makes."
        )

    def decode(self, rows: list[list[int]], side: str = "target") -> list[str]:
        if len(rows) <= FEW_ROWS:
            return [self._processor.decode(row) if row else "" for row in rows]
        return self._processor.decode(rows, num_threads=-1)


def opened(model: bytes) -> tuple[Any, list[str]]:
    """Return SentencePiece's processor of a model, and the piece of each id, all of which are text."""
    import sentencepiece

    try:
        if not model:  # SentencePiece takes it for no model at all.
            raise RuntimeError("It is empty.")
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        return processor, [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    except (RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(f"`model` is not a SentencePiece model. ({error})") from error


def encoded(processor: Any, texts: list[str], out_type: type) -> list[Any]:
    """Return the ids (int) or pieces (str) of each text, of many texts computed on all cores."""
    if len(texts) <= FEW_ROWS:
        return [processor.encode(text, out_type=out_type) for text in texts]
    return processor.encode(texts, out_type=out_type, num_threads=-1)


def _lines(sentences: Iterable[str]) -> Iterator[str]:
    """Yield lines that SentencePiece takes, from normalised sentences.

    Merges are learned within words, so the parts of a sentence teach the same as the whole. Only a word that
    is too long itself is cut inside.

    >>> [len(line) for line in _lines([" ".join(["house"] * 1000)])]
    [1043, 1043, 1043, 1043, 1043, 779]
    """
    for sentence in sentences:
        if RESERVED in sentence:
            sentence = " ".join(sentence.replace(RESERVED, " ").split())
        if len(sentence) > MOST_CHARACTERS:
            yield from textwrap.wrap(sentence, MOST_CHARACTERS, break_on_hyphens=False)
        elif sentence:
            yield sentence


def _sampled(sentences: Iterable[str], most: int) -> Iterator[str]:
    """Yield all sentences, or a random sample of `most`: SentencePiece's own differs between processes."""
    sample: list[str] = []
    chance = random.Random(0).random  # Only random() is promised to stay the same.
    for number, sentence in enumerate(sentences):
        if number < most:
            sample.append(sentence)
        elif (place := int(chance() * (number + 1))) < most:
            sample[place] = sentence
    while sample:  # Pops, so that memory does not hold the sentences twice.
        yield sample.pop()


SPACE = "▁"  # marks a space, and so the start of each word


class BpeDropout:
    """Samples segmentations with the merges of a SentencePiece model.

    SentencePiece can do this as well, but its random numbers differ between processes, whatever the seed.
    These come from NumPy, so a run can be repeated.

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
    """Return the words of a text, each with the mark of the space before it."""
    if not text:
        return []
    return [SPACE + word for word in text.replace(SPACE, " ").split(" ")]


def _without(array: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return the array (n, w) without one element of each row."""
    kept = np.arange(array.shape[1] - 1) + (np.arange(array.shape[1] - 1) >= column[:, None])
    return np.take_along_axis(array, kept, 1)
