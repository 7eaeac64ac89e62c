"""Byte-pair encoding by SentencePiece, for `Tokenizer(algorithm="bpe")`."""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Iterable, Iterator
from typing import Any

from keras_attention.data.bpe_dropout import BpeDropout


class SentencePieces:
    """A SentencePiece model; text must be normalised already.

    Characters outside the vocabulary are written as their UTF-8 bytes, so nothing is unknown.

    Args:
        model: A serialized SentencePiece model.

    Raises:
        ValueError: If `model` is not one.
    """

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(f"`model` is not a SentencePiece model. ({error})") from error

    @staticmethod
    def train(
        sentences: Iterable[str], vocabulary_size: int, max_sentences: int, **options: Any
    ) -> bytes:
        """Learn merges from at most `max_sentences`, and return the model; options go to SentencePiece."""
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_sampled(sentences, max_sentences),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocabulary_size,
                hard_vocab_limit=False,  # a small corpus gives a smaller vocabulary, not an error
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                num_threads=1,  # It is written into the model, so it must not vary.
                minloglevel=2,
                **options,
            )
        except RuntimeError as error:
            raise ValueError(
                f"SentencePiece learned no vocabulary of {vocabulary_size} ids. It needs 3 special "
                "ids, 256 bytes and an id for each character: raise `vocabulary_size`, or lower "
                f"`character_coverage`. ({error})"
            ) from error
        return model.getvalue()

    def vocab_size(self) -> int:
        """Number of ids."""
        return self._processor.vocab_size()

    def id_to_piece(self, token_id: int) -> str:
        """Return the piece for display; "▁" marks the start of a word."""
        return self._processor.id_to_piece(token_id)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text, computed on all cores."""
        return self._processor.encode(texts)

    def encode_with_dropout(self, texts: list[str], dropout: float, seed: int) -> list[list[int]]:
        """Return the ids of each text, with each merge skipped with probability `dropout`."""
        return self._dropout.encode(texts, dropout, seed)

    @functools.cached_property
    def _dropout(self) -> BpeDropout:
        return BpeDropout(self._processor)

    def decode(self, rows: list[list[int]]) -> list[str]:
        """Text of each row of ids."""
        return self._processor.decode(rows) if rows else []  # of no row it makes ""


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
