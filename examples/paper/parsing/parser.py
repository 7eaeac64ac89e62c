"""A Transformer as a parser: sentences and trees as text, and the search for a sentence's tree.

Section 6.3 of the paper. Words are split into pieces by byte-pair encoding; each symbol of a tree is a
single entry of the same vocabulary.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention import Corpus, ParallelText, Tokenizer, Translation, Translator
from keras_attention.data.parallel_text import ChainedPairs
from keras_attention.data.presegmented import JOINER
from keras_attention.decoding import TextConstraint
from keras_attention.utils.checks import check_choice
from keras_attention.utils.files import read_signed_json, write_atomically, write_signed_json
from parsing.baselines import WordTags
from parsing.tree_constraint import WellFormedTrees
from parsing.trees import (
    ANY_TAG,
    LEAVES,
    delinearize,
    escape_word,
    is_bracket,
    repair,
    unescape_word,
)

if TYPE_CHECKING:
    from nltk import Tree

WORDS_FOLDER, SYMBOLS_FILE, VOCABULARY_FILE = "words", "symbols.json", "vocabulary.txt"
NUM_SPECIAL = 3  # padding, end and unknown token
BEGIN_OF_WORD = "▁"  # in the pieces of SentencePiece


class TreeText:
    """Hold the text that a parser is trained on: pieces of words on one side, symbols on the other.

    Make one with `TreeText.train` or `TreeText.load`.

    Args:
        words: Byte-pair encoding of the words.
        phrases: Labels of phrases.
        tags: Labels of words.
        word_tags: The usual tag of a word, or of a rare word's form.
        leaves: What a tree has for each word: `"tags"`, `"XX"` or `"words"`, which are cut into pieces.
    """

    def __init__(
        self,
        words: Tokenizer,
        phrases: Sequence[str],
        tags: Sequence[str],
        word_tags: Mapping[str, str],
        leaves: str = "tags",
    ):
        self.leaves = check_choice("leaves", leaves, LEAVES)
        self.words = words
        self.phrases = tuple(phrases)
        self.tags = tuple(tags)
        self.word_tags = WordTags.from_table(word_tags)
        self._pieces: dict[str, str] = {}

    @classmethod
    def train(
        cls, corpus: Corpus, vocabulary_size: int, word_tags: WordTags, leaves: str = "tags"
    ) -> TreeText:
        """Learn pieces and symbols from the training set of a treebank's corpus.

        Args:
            corpus: Sentences and linearised trees.
            vocabulary_size: Pieces and symbols together, at most.
            word_tags: The usual tags of words.
            leaves: What the corpus' trees have for each word; see `linearize`.
        """
        symbols = {symbol for target in corpus.train.targets() for symbol in target.split()}
        brackets = set(filter(is_bracket, symbols))
        phrases = sorted(symbol[1:] for symbol in brackets if symbol.startswith("("))
        tags = [] if leaves == "words" else sorted(symbols - brackets)
        left = vocabulary_size - len(brackets) - len(tags) - NUM_SPECIAL
        try:
            words = Tokenizer.train(corpus.train.sources(), vocabulary_size=left)
        except ValueError as error:
            raise ValueError(
                f"`vocabulary_size` ({vocabulary_size}) has room for {left} pieces of words, beside the "
                f"{len(brackets) + len(tags)} symbols of trees. {error}"
            ) from error
        return cls(words, phrases, tags, word_tags.of_word, leaves)

    def cut(self, words: Iterable[str]) -> str:
        """Return the pieces of a sentence; "@@" follows each piece that does not end a word.

        There are as many pieces without "@@" as words. Brackets in words are cut by the treebank's names for
        them, which words may have as well: the model sees `-LRB-` for `(` and for `-LRB-`.
        """
        words = list(words)
        new = [word for word in dict.fromkeys(words) if word not in self._pieces]
        if new:
            written = [escape_word(unescape_word(word)) for word in new]
            for word, ids in zip(new, self.words.encode(written), strict=True):
                pieces = "".join(f" {self.words.id_to_token(i)}" for i in ids).split()
                pieces = [piece.removeprefix(BEGIN_OF_WORD) for piece in pieces]
                pieces = [piece for piece in pieces if piece] or ["<empty>"]
                self._pieces[word] = f"{JOINER} ".join(pieces)
        return " ".join(self._pieces[word] for word in words)

    def corpus(self, corpus: Corpus, vocabulary: Path, vocabulary_size: int) -> Corpus:
        """Return the corpus with words split into pieces. The file of its vocabulary is written.

        Args:
            corpus: Sentences and linearised trees.
            vocabulary: The file: all symbols, and the most frequent pieces.
            vocabulary_size: Symbols, pieces and special tokens together, at most.
        """
        splits, parts = (
            {name: self._cut_text(text) for name, text in texts.items()}
            for texts in (corpus.splits, corpus.parts)
        )
        if parts:
            splits["train"] = ParallelText(corpus.train.name, ChainedPairs(list(parts.values())))
        counts = collections.Counter(
            piece for source in splits["train"].sources() for piece in source.split()
        )
        symbols = [*self._brackets("("), *self._brackets(")"), *self.tags]
        pieces = (piece for piece, _ in counts.most_common())
        entries = list(dict.fromkeys([*symbols, *pieces]))[: vocabulary_size - NUM_SPECIAL]
        write_atomically(vocabulary, "".join(f"{entry}\n" for entry in entries))
        return dataclasses.replace(
            corpus,
            **splits,
            vocabulary=vocabulary,
            parts=parts,
        )

    def _cut_text(self, text: ParallelText) -> ParallelText:
        """Return sentences and trees with their words cut into pieces."""
        pairs = [(self.cut(source.split(" ")), self._cut_tree(target)) for source, target in text]
        return ParallelText(text.name, pairs)

    def _cut_tree(self, symbols: str) -> str:
        """Return a tree with its words cut into pieces, if there are words in it."""
        if self.leaves != "words":
            return symbols
        return " ".join(
            symbol if is_bracket(symbol) else self.cut([symbol]) for symbol in symbols.split(" ")
        )

    def _brackets(self, bracket: str) -> list[str]:
        return [f"{bracket}{label}" for label in self.phrases]

    def symbols(self, words: Sequence[str], output: str, tokenizer: Tokenizer) -> list[str]:
        """Return the symbols of a model's output, with the sentence's own words as leaves.

        A tokenizer that does not know a piece writes something else for it; this is undone if all words are
        there.

        Args:
            words: The words of the sentence.
            output: What the model wrote for it.
            tokenizer: The model's tokenizer.
        """
        written = output.split()
        if self.leaves != "words":
            return written
        known = tokenizer.decode(tokenizer.encode([self.cut([word]) for word in words]))
        word_at: dict[int, str] = {}
        expected: list[str] = []
        for word, text in zip(words, known, strict=True):
            word_at[len(expected)] = escape_word(word)
            expected += text.split()
        if expected != [token for token in written if not is_bracket(token)]:
            return written
        symbols, place = [], 0
        for token in written:
            if is_bracket(token):
                if place < len(expected) and place not in word_at:
                    return written  # inside a word
                symbols.append(token)
                continue
            if place in word_at:
                symbols.append(word_at[place])
            place += 1
        return symbols

    def is_leaf(self, symbol: str) -> bool:
        """Whether a symbol that is no bracket can stand for a word."""
        return self.leaves == "words" or symbol in self.tags

    def constraint(self, tokenizer: Tokenizer) -> TextConstraint:
        """Make a constraint for a `Translator` with this tokenizer: trees over each text's words."""

        ids = functools.partial(_ids, tokenizer)
        pairs = zip(ids(self._brackets("(")), ids(self._brackets(")")), strict=True)
        constraint = WellFormedTrees(
            tokenizer.vocabulary_size,
            dict(zip(self.phrases, pairs, strict=True)),
            ids(self.tags),
            tokenizer.end_token_id,
        )
        start = functools.partial(_start, constraint, tokenizer, self.leaves)
        return TextConstraint(constraint, start)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `words/` and `symbols.json` into a folder.

        Raises:
            ValueError: If the folder holds files of these names that this package did not write.
        """
        file = Path(folder) / SYMBOLS_FILE
        if file.exists():
            read_signed_json(
                file, "Or another program wrote it. Nothing was changed: move it away."
            )
        self.words.save(Path(folder) / WORDS_FOLDER)
        symbols = {
            "phrases": list(self.phrases),
            "tags": list(self.tags),
            "word_tags": {escape_word(w): tag for w, tag in self.word_tags.of_word.items()},
            "leaves": self.leaves,
        }
        write_signed_json(file, symbols)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> TreeText:
        """Read what `save` wrote.

        Raises:
            ValueError: If a file is missing or damaged.
        """
        words = Tokenizer.load(Path(folder) / WORDS_FOLDER)
        symbols = read_signed_json(Path(folder) / SYMBOLS_FILE, "Train again.")
        symbols["word_tags"] = {unescape_word(w): tag for w, tag in symbols["word_tags"].items()}
        return cls(words, **symbols)


# Functions of the module, so that a `Translator` with this constraint can be copied to another process.
def _ids(tokenizer: Tokenizer, symbols: Sequence[str]) -> list[int]:
    """Return the ids of symbols that are one token each."""
    return [row[0] for row in tokenizer.encode(list(symbols))]


def _start(
    constraint: WellFormedTrees,
    tokenizer: Tokenizer,
    leaves: str,
    texts: Sequence[str],
    max_lengths: Sequence[int],
    beam_size: int,
) -> Any:
    sentences = [_pieces_by_word(text) for text in texts]
    if leaves != "words":
        return constraint.start(list(map(len, sentences)), max_lengths, beam_size)
    words = [[_ids(tokenizer, pieces) for pieces in sentence] for sentence in sentences]
    return constraint.start(words, max_lengths, beam_size)


@dataclasses.dataclass(frozen=True)
class Parse:
    """What a parser found for a sentence.

    Attributes:
        tree: The tree, repaired if necessary.
        is_well_formed: Whether the symbols were a tree over the words without repair.
        score: Mean log-probability of a token, by which the surest trees are chosen.
    """

    tree: Tree
    is_well_formed: bool
    score: float = dataclasses.field(default=0.0, compare=False)


class Parser:
    """Finds the trees of sentences by beam search, with the paper's settings (section 6.3).

    A word gets its usual tag if the parse has none (`XX`), or if only one of the two is a tag of punctuation:
    bracketing F1 leaves out words by their tags.

    Args:
        model: A trained `Transformer`.
        tokenizer: The tokenizer that it was trained with.
        text: The `TreeText` that made its training text.
        beam_size: Hypotheses kept.
        length_penalty: The paper's alpha.
        max_extra_length: How many more symbols a tree may have than its sentence has pieces.
        constrained: Whether the search produces only well-formed trees; if not, trees are repaired.
        batch_tokens: Source positions of a batch.
        show_progress: Whether to show a progress line.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        text: TreeText,
        *,
        beam_size: int = 21,
        length_penalty: float = 0.3,
        max_extra_length: int = 300,
        constrained: bool = True,
        batch_tokens: int = 1024,
        show_progress: bool = True,
    ):
        self.text = text
        self._tokenizer = tokenizer
        self._translate = Translator(
            model,
            tokenizer,
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_extra_length=max_extra_length,
            batch_tokens=batch_tokens,
            show_progress=show_progress,
            constraint=text.constraint(tokenizer) if constrained else None,
        )

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[Parse]:
        """Return the parse of each sentence; a sentence is a list of words.

        Raises:
            ValueError: A sentence without words.
        """
        empty = [place for place, words in enumerate(sentences) if not words]
        if empty:
            raise ValueError(f"A sentence needs words. Received: sentences[{empty[0]}]=[]")
        found = self._translate.translate([self.text.cut(words) for words in sentences])
        return [self._parse(words, best) for words, [best] in zip(sentences, found, strict=True)]

    def _parse(self, words: Sequence[str], best: Translation) -> Parse:
        symbols = self.text.symbols(words, best.text, self._tokenizer)
        length = len(best.token_ids) + best.is_finished
        penalty = ((5 + length) / 6) ** self._translate.length_penalty if best.is_finished else 1.0
        score = best.score * penalty / max(1, length)
        text = self.text
        known = [
            symbol
            for symbol in symbols
            if (symbol[1:] in text.phrases if is_bracket(symbol) else text.is_leaf(symbol))
        ]
        is_well_formed = len(known) == len(symbols)
        try:
            tree = delinearize(words, known, text.leaves)
        except ValueError:
            is_well_formed = False
            tree = repair(words, known, text.leaves)
        usual = self.text.word_tags(list(map(unescape_word, words)))
        for node, tag in zip(tree.subtrees(_is_tag), usual, strict=True):
            label = node.label()
            if label == ANY_TAG or label[:1].isalpha() != tag[:1].isalpha():
                node.set_label(tag)
        return Parse(tree, is_well_formed, score)


def _is_tag(node: Tree) -> bool:
    return isinstance(node[0], str)


def _pieces_by_word(text: str) -> list[list[str]]:
    """Return the pieces of each word of a text from `TreeText.cut`."""
    words: list[list[str]] = []
    is_begun = False
    for piece in text.split():
        if not is_begun:
            words.append([])
        words[-1].append(piece)
        is_begun = piece.endswith(JOINER)
    return words
