"""`Corpus`: a parallel corpus, its parts and its description."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Annotated, Any

from keras_attention.data.filters import FilteredText, Filters
from keras_attention.data.held_out import found_in
from keras_attention.data.parallel_text import Pair, ParallelText
from keras_attention.data.presegmented import join_pieces
from keras_attention.data.symbols import checked_symbols
from keras_attention.utils.arguments import Has, check_fields
from keras_attention.utils.checks import check_integer

Text = Annotated[ParallelText, Has("a ParallelText", "sources", "targets", "fingerprint")]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A parallel corpus: its parts and its description.

    Attributes:
        name: Name of the corpus, such as "multi30k".
        source_language, target_language: Language codes, such as "en" and "de".
        synthetic: Whether a program generated it; results on it then say nothing about real text.
        description: Origin and terms of use.
        train, validation, test: The parts, each a `ParallelText`. `test` may be None.
        extra: Further test sets by name.
        vocabulary: If the text is already split into subwords, the file that lists them; None for plain
            text. See `Tokenizer.from_vocabulary`.
        alignments: True word alignments of some pairs, as pairs of a source and a target word index.
            Punctuation at the beginning or end of a word counts as a separate word.
        symbols: The tags in the training text, which a tokenizer keeps whole.
        parts: The texts that `train` consists of, by name, if they may be mixed with weights.
    """

    name: str
    source_language: str
    target_language: str
    synthetic: bool
    description: str
    train: Text
    validation: Text
    test: Text | None = None
    extra: dict[str, Text] = dataclasses.field(default_factory=dict)
    vocabulary: Path | None = None
    alignments: Annotated[
        dict[Pair, tuple[tuple[int, int], ...]], Has("a dict of links by pair", "get")
    ] = dataclasses.field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    parts: dict[str, Text] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        checked_symbols(self.symbols)

    @property
    def splits(self) -> dict[str, ParallelText]:
        """All parts by name: "train", "validation", "test" (if there is one) and the extra test sets."""
        parts = {"train": self.train, "validation": self.validation}
        if self.test is not None:
            parts["test"] = self.test
        return parts | self.extra

    @functools.cached_property
    def also_trained(self) -> dict[str, dict[str, int]]:
        """How many `different` sources each held-out part has, and how many of them are `trained` on, too."""
        return found_in(self.train, {k: v for k, v in self.splits.items() if k != "train"})

    def references(self, split: str) -> list[str]:
        """Return the target sentences of a part, with subwords joined to words, to score translations."""
        targets = self.splits[split].targets()
        return list(targets if self.vocabulary is None else map(join_pieces, targets))

    def filtered(self, filters: Filters | None) -> Corpus:
        """Return the corpus with its training part filtered by `filters` only; None changes nothing."""
        if filters is None:
            return self
        if self.parts:
            raise ValueError("`filters` and named parts of the training text cannot be combined.")
        text = self.train.unfiltered if isinstance(self.train, FilteredText) else self.train
        return dataclasses.replace(self, train=FilteredText(text, filters))

    def first(self, pairs: int | None = None, test: int | None = None) -> Corpus:
        """Return the corpus with only its first training and test pairs.

        Args:
            pairs: Number of training pairs; None for all.
            test: Number of test pairs; None for all.

        Raises:
            ValueError: If the corpus has fewer pairs.
        """
        parts = {"train": pairs, "test": None if self.test is None else test}
        cut: dict[str, Any] = {} if pairs is None else {"parts": {}}
        for name, number in parts.items():
            if number is not None:
                text = self.splits[name]
                check_integer("pairs" if name == "train" else name, number, 1, len(text))
                some = list(itertools.islice(text, number))
                cut[name] = ParallelText(f"{text.name}[:{number}]", some)
        return dataclasses.replace(self, **cut)

    def check(self) -> Corpus:
        """Read every part once, to find broken files now, and return the corpus itself."""
        for text in (*self.splits.values(), *self.parts.values()):
            len(text)
        return self
