"""Text to token ids and back, with one vocabulary for source and target (section 5.1 of the paper)."""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, overload

import numpy as np

from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.data.joints import Joints
from keras_attention.data.learned_tokenizer import (
    END_TOKEN_ID,
    PAD_TOKEN_ID,
    UNKNOWN_TOKEN_ID,
    LearnedTokenizer,
)
from keras_attention.data.normalization import (
    NONE,
    USUAL,
    normalize,
    normalized_texts,
    with_normalization,
)
from keras_attention.data.presegmented import SIDES, PresegmentedVocabulary
from keras_attention.data.saved_tokenizer import SavedTokenizer
from keras_attention.data.sentence_pieces import SentencePieces
from keras_attention.data.symbols import (
    ManyLanguages,
    check_language,
    checked_prefix,
    language_tags,
)
from keras_attention.data.word_pieces import WordPieces
from keras_attention.utils.checks import check_choice, check_integer, check_number, check_text
from keras_attention.utils.sides import start_of

# Each encodes and decodes, and knows its pieces.
ALGORITHMS: dict[str, Any] = {
    "bpe": SentencePieces,
    "wordpiece": WordPieces,
    "presegmented": PresegmentedVocabulary,
    "imported": ImportedPieces,
}


class Tokenizer(LearnedTokenizer, SavedTokenizer, ManyLanguages):
    """Splits text into subwords and maps them to ids.

    Ids: padding 0, end of sentence 1, unknown 2, then the vocabulary. There is no separate start token: a
    decoder starts from the padding token, whose embedding is the zero vector, as in the authors'
    code. An imported tokenizer, and a SentencePiece model that another program has trained, has ids of its
    own: ask `pad_token_id`, `start_token_id`, `end_token_id` and `unknown_token_id`.

    Text is first normalised by `normalization.normalize`, which also takes away invisible characters such
    as soft hyphens. The default, `"bpe"`, restores any text: `decode(encode(text)) == normalize(text)`.
    It writes characters outside the vocabulary as their UTF-8 bytes, for which 256 ids are reserved. With
    `"wordpiece"`, a word with an unknown character becomes the unknown token. `"presegmented"` encodes text
    that is already split into subwords ("Wasch@@ bär") and decodes to words. `"imported"` is the tokenizer
    of another program's model: it has its own normalisation, and it may have other pieces, and other ids,
    in the source than in the target, which the argument `side` of the methods names.

    Make one with `Tokenizer.train`, `Tokenizer.load`, `Tokenizer.from_preset` or, for `"presegmented"`,
    `Tokenizer.from_vocabulary`.

    Args:
        model: The trained model, as bytes: a SentencePiece model ("bpe"), or UTF-8 text with
            one piece per line ("wordpiece", "presegmented"), or what `ImportedPieces.model` returns.
        algorithm: `"bpe"`, `"wordpiece"`, `"presegmented"` or `"imported"`. Defaults to `"bpe"`.
        source_prefix: Text that is put before every source that is encoded, such as the tag `"<2de>"`. It may
            be set later, too. Defaults to None.
        source_language, target_language: See `in_languages`. Default to None.

    Attributes:
        languages: Id of each language's code, of the tokenizer of a model for many languages; else empty.
        tags: Each language that a tag before the source can name, with its tag: `"fra"` with `">>fra<<"`, as
            in OPUS-MT's models for many languages, or `"de"` with `"<2de>"`, of `symbols`.
        normalization: How text is normalised: `"nfc_visible"`, see `normalization.normalize`, or `"none"` if
            the tokenizer is imported.
        symbols: The symbols that `train` was given, which are one piece wherever they stand.
        vocabulary_size: Number of ids, of the source if the target has ids of its own.
        target_vocabulary_size: Number of ids of the target.
        first_source_ids: Ids that every source begins with, of an imported tokenizer.
        ends_source: Whether the model reads sources with the end token behind them, as it nearly always
            does.

    Raises:
        ValueError: If `algorithm` is unknown, `model` is not a model of it, or a SentencePiece model has no
            padding or no end piece.

    Example:

    >>> texts = ["the cat sat on the mat", "die Katze saß auf der Matte"]
    >>> tokenizer = Tokenizer.train(texts, vocabulary_size=300)
    >>> ids = tokenizer.encode("the cat 😀")
    >>> tokenizer.decode(ids + [tokenizer.end_token_id, tokenizer.pad_token_id])
    'the cat 😀'
    >>> tokenizer.tokens("the cat")
    ['▁the', '▁c', 'at']

    Reference: sections 5.1 (byte-pair encoding for English-German, word-pieces for English-French)
    and 3.4 (one matrix for both languages) of [Attention Is All You
    Need](https://arxiv.org/abs/1706.03762).
    """

    pad_token_id = PAD_TOKEN_ID
    start_token_id = PAD_TOKEN_ID
    end_token_id = END_TOKEN_ID
    unknown_token_id = UNKNOWN_TOKEN_ID
    ends_source = True
    from_preset: ClassVar[Callable[[str | os.PathLike[str]], Tokenizer]]  # set by `data.presets`

    def __init__(
        self,
        model: bytes,
        algorithm: str = "bpe",
        source_prefix: str | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        check_choice("algorithm", algorithm, ALGORITHMS)
        if not isinstance(model, bytes | bytearray):
            raise ValueError(f"`model` must be bytes. Received: {type(model).__name__}")
        self.algorithm = algorithm
        self.normalization = NONE if algorithm == "imported" else USUAL
        self._model = bytes(model)
        self._pieces = ALGORITHMS[self.algorithm](self._model)
        self.__dict__.update(self._pieces.ids)
        self._names = self._pieces.names
        self.vocabulary_size, self.target_vocabulary_size = (
            len(self._names[side]) for side in SIDES
        )
        self.first_source_ids: Sequence[int] = self._pieces.source_prefix
        self.ends_source = self._pieces.ends_source
        self.symbols: tuple[str, ...] = self._pieces.symbols
        self.languages: Mapping[str, int] = self._pieces.languages
        pieces = self._names["source"] if algorithm == "imported" else self.symbols
        self.tags: Mapping[str, str] = {} if self.languages else language_tags(pieces)
        self.source_language = check_language("source_language", source_language, self.languages)
        known = self.target_languages
        only = next(iter(known)) if len(known) == 1 else None
        self.target_language = check_language("target_language", target_language or only, known)
        self.source_prefix = source_prefix

    @property
    def source_prefix(self) -> str | None:
        """What is put before every source."""
        return self._source_prefix

    @source_prefix.setter
    def source_prefix(self, prefix: str | None) -> None:
        self._source_prefix = None if prefix is None else checked_prefix(prefix, self)

    _source_prefix: str | None = None

    @overload
    def encode(
        self, texts: str, dropout: float = ..., seed: int | None = ..., side: str = ...
    ) -> list[int]: ...

    @overload
    def encode(
        self,
        texts: list[str] | tuple[str, ...],
        dropout: float = ...,
        seed: int | None = ...,
        side: str = ...,
    ) -> list[list[int]]: ...

    def encode(
        self,
        texts: str | list[str] | tuple[str, ...],
        dropout: float = 0.0,
        seed: int | None = None,
        side: str = "source",
    ) -> list[int] | list[list[int]]:
        """Token ids of a text, or of each text of a list. No end token is added.

        Args:
            texts: A str, or a list of str (many are encoded on all cores).
            dropout: Probability of skipping a BPE merge, for subword regularisation
                ([Provilkov et al., 2020](https://arxiv.org/abs/1910.13267)). "bpe" only. Defaults to 0.
            seed: Integer seed, required with `dropout`: the same seed and texts give the same ids.
            side: `"source"` or `"target"`, which differ only if the tokenizer is imported. Defaults to
                `"source"`.

        Returns:
            A list of int, or a list of such lists.

        Raises:
            ValueError: If a text is not a str, or `dropout` or `seed` does not fit.
        """
        check_choice("side", side, SIDES)
        given = [texts] if isinstance(texts, str) else texts
        normalized = list(normalized_texts(given, self.normalization))
        if side == "source" and self.source_prefix is not None:
            prefix = f"{self.source_prefix} "
            normalized = [prefix + text if normalize(text) else text for text in normalized]
        if dropout == 0:
            rows = self._pieces.encode(normalized, side)
        elif not isinstance(self._pieces, SentencePieces):
            raise ValueError(
                f"`dropout` needs a 'bpe' tokenizer. Received: algorithm={self.algorithm!r}"
            )
        else:
            check_number("dropout", dropout, least=0, below=1)
            seed = check_integer("seed", seed)  # `dropout` needs one.
            rows = self._pieces.dropout.encode(normalized, dropout, seed)
        if self.languages:
            code = self.language_id(side)
            before, after = [code], []
            if side == "target":
                before = start_of(self)
            elif not self.ends_source:
                before, after = [], [self.end_token_id, code]
            rows = [[*before, *row, *after] if row else [] for row in rows]
        return rows[0] if isinstance(texts, str) else rows

    def decode(
        self, ids: Sequence[int] | Sequence[Sequence[int]], side: str = "target"
    ) -> str | list[str]:
        """Return the text of a sequence of ids, or of each sequence in a list or 2-D array.

        Stops at the first end token and skips padding. Bytes that are not valid UTF-8, which a model may
        predict, become U+FFFD. The text never contains a line break.

        Args:
            ids: A sequence of ids, or a list of such sequences; also an array or a tensor. An empty
                list is one empty sequence; an array of shape (0, T) holds no sequence.
            side: Whose ids they are: see `encode`. Defaults to `"target"`.

        Returns:
            A str, or a list of str.

        Raises:
            ValueError: If an id is outside the vocabulary.
        """
        if hasattr(ids, "__array__"):
            rows, single = np.asarray(ids).tolist(), np.ndim(ids) == 1
        elif isinstance(ids, Iterable) and not isinstance(ids, str | bytes):
            rows = list(ids)
            single = not rows or np.ndim(rows[0]) == 0
        else:
            rows = None
        if not isinstance(rows, list):
            raise ValueError(f"`ids` must be a sequence of ids, or several. Received: {ids!r}")
        trimmed = [self._without_special(row, side) for row in ([rows] if single else rows)]
        texts = self._pieces.decode(trimmed, side)
        decoded = list(normalized_texts(texts, self.normalization))
        return decoded[0] if single else decoded

    def tokens(self, text: str, side: str = "source") -> list[str]:
        """Return the subwords of a text, for display; in "bpe", "▁" marks the start of a word."""
        ids = self.encode(check_text("text", text), side=side)
        return [self.id_to_token(token_id, side) for token_id in ids]

    def id_to_token(self, token_id: int, side: str = "target") -> str:
        """Return the subword with this id, for display."""
        token_id = check_integer("token_id", token_id)
        self._check_ids([token_id], side)
        return self._names[side][token_id]

    def sentence_piece_models(self) -> dict[str, bytes]:
        """Return the SentencePiece models of `"source"` and `"target"`, for programs that read such models.

        They split a text as `tokens` does; the normalisation is in them. Their own ids may be others. There
        are none if they alone cannot do it: of other algorithms, with a prefix, and with codes of languages.

        Raises:
            ImportError: If protobuf is not installed, which writes the normalisation of a "bpe" model.
        """
        pieces = self._pieces
        if self.source_prefix is not None:
            return {}
        if isinstance(pieces, ImportedPieces):
            return {} if pieces.source_prefix or pieces.languages else pieces.models()
        if not isinstance(pieces, SentencePieces):
            return {}
        return dict.fromkeys(SIDES, self.normalizing().model)

    def normalizing(self) -> Tokenizer:
        """Return the tokenizer with its normalisation in its SentencePiece model, for other programs.

        The ids are the same. Tokenizers without such a model stay, and those whose model normalises already:
        it alone does not leave out the invisible characters that `encode` does.

        Raises:
            ImportError: If protobuf is not installed, which writes the normalisation.
        """
        if self.algorithm != "bpe":
            return self
        return Tokenizer(with_normalization(self._model), source_prefix=self.source_prefix)

    @functools.cached_property
    def familiarity(self) -> list[int]:
        """Known letters of each id of the source, or -1 for an unknown character.

        Together the ids of a text that consists mostly of what the vocabulary lacks come to less than 0. In
        "bpe", a character is unknown that is written as bytes. Elsewhere a word is, and 1 stands for a piece
        that holds a letter.
        """
        familiarity = []
        has_bytes = self.algorithm in ("bpe", "imported")
        for piece in self._names["source"]:
            byte = re.fullmatch("<0x(..)>", piece) if has_bytes else None
            letters = sum(map(str.isalpha, piece))
            if byte:  # Only the first byte of a character counts.
                letters = -1 if not 0x80 <= int(byte[1], 16) < 0xC0 else 0
            elif not has_bytes:
                letters = min(letters, 1)
            familiarity.append(letters)
        for token_id in self.languages.values():
            familiarity[token_id] = 0
        familiarity[self.pad_token_id] = familiarity[self.end_token_id] = 0
        familiarity[self.unknown_token_id] = -1
        return familiarity

    @functools.cached_property
    def joints(self) -> Joints:
        """Which tokens of the target are joined to one word."""
        joints = Joints.of_pieces(self._names["target"], **self._pieces.joined_by)
        special = [self.pad_token_id, self.end_token_id, *self.languages.values()]
        joints.goes_on[special] = joints.continues[special] = False
        return joints

    def __reduce__(self) -> tuple[Any, ...]:
        # What the libraries hold for a model cannot be copied to another process, the model can.
        languages = self.source_language, self.target_language
        return type(self), (self._model, self.algorithm, self.source_prefix, *languages)

    @property
    def model(self) -> bytes:
        """The trained model, as the argument of this name."""
        return self._model

    def _without_special(self, row: Any, side: str) -> list[int]:
        try:
            ids = [operator.index(token_id) for token_id in row]
        except TypeError:
            raise ValueError(f"Token ids must be integers. Received: {row!r}") from None
        if self.end_token_id in ids:
            ids = ids[: ids.index(self.end_token_id)]
        self._check_ids(ids, side)
        return [token_id for token_id in ids if token_id != self.pad_token_id]

    def _check_ids(self, ids: list[int], side: str) -> None:
        size = len(self._names[check_choice("side", side, SIDES)])
        if ids and not 0 <= min(ids) <= max(ids) < size:
            raise ValueError(
                f"Token ids must be from 0 to {size - 1}, the vocabulary of this "
                f"tokenizer. Received: ids from {min(ids)} to {max(ids)}. Are they another tokenizer's?"
            )
