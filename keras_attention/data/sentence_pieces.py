"""Byte-pair encoding by SentencePiece, for `Tokenizer(algorithm="bpe")`."""

from __future__ import annotations

import functools
import io
import random
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from keras_attention.data.bpe_dropout import BpeDropout
from keras_attention.data.presegmented import SIDES, Pieces

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

    def encode_with_dropout(self, texts: list[str], dropout: float, seed: int) -> list[list[int]]:
        """Return the ids of each text, with each merge skipped with probability `dropout`."""
        return self._dropout.encode(texts, dropout, seed)

    @functools.cached_property
    def _dropout(self) -> BpeDropout:
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
