"""How a tokenizer is made: a vocabulary is learned from text, or read from a list of subwords."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Self, cast

from keras_attention.data.normalization import normalize, normalized_texts
from keras_attention.data.presegmented import PresegmentedVocabulary
from keras_attention.data.sentence_pieces import SentencePieces
from keras_attention.data.symbols import checked_symbols
from keras_attention.data.text_files import existing_file, read_lines
from keras_attention.data.word_pieces import WordPieces
from keras_attention.utils.checks import check_choice, check_integer, check_number

PAD_TOKEN_ID = 0
END_TOKEN_ID = 1
UNKNOWN_TOKEN_ID = 2
TRAINABLE = ("bpe", "wordpiece")
MAX_SENTENCES = 2_000_000
LARGEST_VOCABULARY = 1_000_000


class LearnedTokenizer:
    """Methods of `Tokenizer` that make one."""

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocabulary_size: int = 8000,
        algorithm: str = "bpe",
        character_coverage: float = 0.99999,
        max_sentences: int = MAX_SENTENCES,
        symbols: Iterable[str] = (),
    ) -> Self:
        """Learn a vocabulary from the sentences of both languages.

        The same texts give the same tokenizer.

        Args:
            texts: Iterable of str, read once.
            vocabulary_size: Number of ids, special ones included. If the texts are too few to fill it,
                the vocabulary is smaller: see the attribute `vocabulary_size` of the result. Defaults
                to 8000.
            algorithm: `"bpe"`, trained by SentencePiece, or `"wordpiece"`, trained by TensorFlow Text
                (needs `tensorflow` and `tensorflow-text`; takes minutes). Defaults to `"bpe"`.
            character_coverage: Share of the characters in `texts` that get their own id; rarer ones are
                written as bytes. "bpe" only. At least 0.98. Defaults to 0.99999.
            max_sentences: If there are more texts, a random sample of this size is used. "bpe" only.
                Defaults to two million, which takes about 1.1 GB of memory on WMT14. A text of more than
                1,048 characters counts as several.
            symbols: Words in angle brackets, such as `"<2de>"` for a language or `"<bt>"` for text that was
                translated back. Each stays whole wherever it stands, with an id of its own. Defaults to none.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: If there is no text, a text is not a str, an argument is out of range, or the
                vocabulary is too small for the characters.
        """
        check_choice("algorithm", algorithm, TRAINABLE)
        check_integer("vocabulary_size", vocabulary_size, 4, LARGEST_VOCABULARY)
        check_integer("max_sentences", max_sentences, 101)
        check_number("character_coverage", character_coverage, least=0.98, most=1)
        symbols = checked_symbols(symbols)
        sentences: Iterator[str] = filter(None, normalized_texts(texts))
        first = list(itertools.islice(sentences, 1))
        if not first:
            raise ValueError("`texts` holds no text: no vocabulary can be learned from it.")
        sentences = itertools.chain(first, sentences)
        if algorithm == "wordpiece":
            model = WordPieces.train(sentences, vocabulary_size, symbols)
        else:
            model = SentencePieces.train(
                sentences,
                vocabulary_size,
                character_coverage=character_coverage,
                max_sentences=max_sentences,
                user_defined_symbols=symbols,
                pad_id=PAD_TOKEN_ID,
                eos_id=END_TOKEN_ID,
                unk_id=UNKNOWN_TOKEN_ID,
                bos_id=-1,
            )
        tokenizer = cast(Any, cls)(model, algorithm)
        if tokenizer.vocabulary_size < vocabulary_size:
            warnings.warn(
                f"The texts are too few for a vocabulary of {vocabulary_size:,} ids: it has "
                f"{tokenizer.vocabulary_size:,}. Give more text, or a smaller `vocabulary_size`.",
                stacklevel=2,
            )
        return tokenizer

    @classmethod
    def from_vocabulary(cls, path: str | os.PathLike[str]) -> Self:
        """Create a tokenizer for text that is already split into subwords, from a list of these subwords.

        Args:
            path: UTF-8 file with one subword per line. Anything after a tab or space, such as a count, is
                ignored, and so are "<unk>", "<s>" and "</s>".

        Returns:
            A `Tokenizer` with `algorithm="presegmented"`.

        Raises:
            FileNotFoundError: If the file is missing.
            ValueError: If the file holds no subword.

        >>> import tempfile
        >>> from keras_attention import Tokenizer
        >>> with tempfile.NamedTemporaryFile("w", suffix=".bpe", encoding="utf-8") as file:
        ...     _ = file.write("<unk>\\n<s>\\n</s>\\nein\\nWasch@@\\nbär\\n")
        ...     file.flush()
        ...     tokenizer = Tokenizer.from_vocabulary(file.name)
        >>> tokenizer.encode("ein Wasch@@ bär")
        [3, 4, 5]
        >>> tokenizer.decode([3, 4, 5])
        'ein Waschbär'
        """
        # As the text will be: a piece with a soft hyphen would never be found in it.
        lines = (normalize(line).split() for line in read_lines(existing_file(path)))
        pieces = [words[0] for words in lines if words]
        if not pieces:
            raise ValueError(f"'{path}' holds no subword; expected one on each line.")
        return cast(Any, cls)(PresegmentedVocabulary.model(pieces), "presegmented")
