"""Word-pieces, for `Tokenizer(algorithm="wordpiece")`."""

from __future__ import annotations

import collections
import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Sequence

from keras_attention.data.presegmented import SIDES, SPECIAL_TOKENS, UNKNOWN_ID, ListedPieces
from keras_attention.data.symbols import SYMBOL, pattern_of
from keras_attention.utils.lazily import needed

UNKNOWN_TEXT = " ⁇ "  # as SentencePiece has it
RUNS = re.compile(r"[^\W_]+|[\W_]+")  # of letters and digits, and of others
# The trainer, in Python, uses only so many of the most frequent words, to finish within minutes.
MOST_WORDS = 50_000
LONGEST_WORD = 50  # of letters; the trainer skips longer ones
SHOWN_LETTERS = 40
JOINER = "\u2581"  # marks a piece inside a word; cannot occur in normalised text


def split_words(text: str) -> list[str]:
    """Split at each boundary between letters or digits and other characters; drop single spaces.

    This is the authors' tokenisation (tensor2tensor), which `join_words` inverts.

    >>> split_words("Well, it works.")
    ['Well', ', ', 'it', 'works', '.']
    """
    return [word for word in RUNS.findall(text) if word != " "]


def _with_symbols(text: str, symbols: re.Pattern[str]) -> list[str]:
    """Like `split_words`, but symbols stay whole, and so does a single space beside one."""
    words: list[str] = []
    parts = symbols.split(text)
    for place, part in enumerate(parts):
        is_symbol, is_last = place % 2 == 1, place == len(parts) - 1
        runs = [part] if is_symbol else RUNS.findall(part)
        for number, run in enumerate(runs):
            is_beside = (number == 0 and place > 0) or (number == len(runs) - 1 and not is_last)
            if run != " " or is_beside:
                words.append(run)
    return words


def _short_words(counts: collections.Counter[str]) -> collections.Counter[str]:
    """Return the counts, with the parts of long words in their place, such as sentences without spaces."""
    short: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for begin in range(0, len(word), LONGEST_WORD):
            short[word[begin : begin + LONGEST_WORD]] += count
    return short


def join_words(words: Iterable[str]) -> str:
    """Inverts `split_words`: a space goes between two neighbours that are letters or digits.

    >>> join_words(['Well', ', ', 'it', 'works', '.'])
    'Well, it works.'
    """
    text = ""
    for word in words:
        text += f" {word}" if text[-1:].isalnum() and word[:1].isalnum() else word
    return text


class WordPieces(ListedPieces):
    """Greedy longest-match subwords.

    A word with an unknown character becomes the unknown token, which decodes as "⁇".
    """

    joined_by = {"before": "##"}

    def __init__(self, model: bytes) -> None:
        super().__init__(model, "word-pieces")
        shown = [re.sub(f"^{JOINER}", "##", token) for token in self._tokens]
        self.names = dict.fromkeys(SIDES, shown)
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        self._longest = max(map(len, self._tokens))
        self.symbols = tuple(filter(SYMBOL.fullmatch, self._tokens[len(SPECIAL_TOKENS) :]))
        self._pattern = pattern_of(self.symbols)
        self._encode_word = functools.lru_cache(maxsize=200_000)(self._match_word)

    @staticmethod
    def train(sentences: Iterable[str], vocabulary_size: int, symbols: Sequence[str] = ()) -> bytes:
        """Learns pieces with TensorFlow Text's trainer; returns the model.

        keras-hub's trainer does the same, but moves each sentence to TensorFlow and back to count its
        words.
        """
        trainer = needed(
            "tensorflow_text.tools.wordpiece_vocab.wordpiece_tokenizer_learner_lib",
            "Training word-pieces needs tensorflow and tensorflow-text: "
            "`pip install tensorflow tensorflow-text`, or use algorithm='bpe'.",
        )
        reserved = list(SPECIAL_TOKENS)
        pattern = pattern_of(symbols)
        if pattern is not None:
            sentences = (pattern.sub(" ", sentence) for sentence in sentences)
            reserved += [*symbols, " "]  # A space beside a symbol is a piece of its own.
        counts = collections.Counter(itertools.chain.from_iterable(map(split_words, sentences)))
        pieces = trainer.learn(
            _short_words(counts),
            vocabulary_size,
            reserved,
            joiner=JOINER,
            max_input_tokens=MOST_WORDS,
            max_token_length=LONGEST_WORD,
        )
        pieces = list(dict.fromkeys(pieces) if symbols else pieces)[:vocabulary_size]
        if len(pieces) <= len(reserved) + 1:
            raise ValueError(
                f"No word-piece was learned: `vocabulary_size` ({vocabulary_size}) is too small "
                "for the characters of the texts. Raise it."
            )
        model = "\n".join(pieces).encode()
        encode_word = WordPieces(model)._encode_word
        unknown = [word for word in counts if encode_word(word) == (UNKNOWN_ID,)]
        if unknown:
            # The trainer takes the 1,000 most frequent characters, and what the size leaves room for.
            share = sum(counts[word] for word in unknown) / counts.total()
            warnings.warn(
                f"{len(unknown):,} of the {len(counts):,} different words of the texts, {share:.2g} of all "
                "words, have a character without a word-piece, and become the unknown token: "
                f"{', '.join(repr(word[:SHOWN_LETTERS]) for word in unknown[:3])}, .. "
                "algorithm='bpe' knows every character.",
                stacklevel=4,
            )
        return model

    def encode(self, texts: list[str], side: str = "source") -> list[list[int]]:
        return [
            list(itertools.chain.from_iterable(map(self._encode_word, self._split(text))))
            for text in texts
        ]

    def _split(self, text: str) -> list[str]:
        return split_words(text) if self._pattern is None else _with_symbols(text, self._pattern)

    def decode(self, rows: list[list[int]], side: str = "target") -> list[str]:
        return [join_words(self._words(row)) for row in rows]

    def _words(self, row: list[int]) -> list[str]:
        words: list[str] = []
        for token_id in row:
            token = UNKNOWN_TEXT if token_id == UNKNOWN_ID else self._tokens[token_id]
            if token.startswith(JOINER) and words:
                words[-1] += token[len(JOINER) :]
            else:
                words.append(token.removeprefix(JOINER))
        return words

    def _match_word(self, word: str) -> tuple[int, ...]:
        ids = []
        begin = 0
        while begin < len(word):
            prefix = JOINER if begin else ""
            for end in range(min(len(word), begin + self._longest), begin, -1):
                token_id = self._ids.get(prefix + word[begin:end])
                if token_id is not None:
                    ids.append(token_id)
                    begin = end
                    break
            else:
                return (UNKNOWN_ID,)
        return tuple(ids)
