"""Texts whose translations are hardly good: unlike a model's training text, or not as a glossary wants."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

SHOWN = 10  # numbers of texts in a message


class UnusualText(UserWarning):
    """Some texts are longer than any in training, the vocabulary lacks most of their characters, or a
    glossary's translations cannot be in theirs."""


@dataclasses.dataclass
class UnusualTexts:
    """Collects the numbers of unusual texts, for one message about all of them.

    Example:

    >>> UnusualTexts("lines", count=500, longest=40, long=[7, 300]).message()
    '2 of 500 lines are longer than any in training (40 tokens): 7, 300. Split them into sentences.'
    """

    what: str = "texts"  # what the texts are called in the message
    first: int = 0  # number of the next text
    count: int = 0  # how many texts were looked at
    # Tokens of the longest source in training, end token included; None if not known.
    longest: int | None = None
    # Numbers of the texts that are longer.
    long: list[int] = dataclasses.field(default_factory=list)
    # Numbers of the texts that consist mostly of unknown characters.
    unknown: list[int] = dataclasses.field(default_factory=list)
    # Numbers of the texts whose translations lack one of the glossary, each with that.
    unmet: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    def add(
        self,
        sources: Sequence[Sequence[int]],
        tokenizer: Any,
        longest: int | None,
        warns: bool = False,
    ) -> None:
        """Look at the token ids of some texts, end token included; `[]` for an empty one.

        `warns` says whether to warn the caller of `Translator.translate` at once.
        """
        self.longest = longest
        # A tokenizer of one's own need not know what it does not know.
        familiarity = getattr(tokenizer, "familiarity", None)
        for number, ids in enumerate(sources, start=self.first):
            if longest is not None and len(ids) > longest:
                self.long.append(number)
            if familiarity is not None and sum(map(familiarity.__getitem__, ids)) < 0:
                self.unknown.append(number)
        self.first += len(sources)
        self.count += len(sources)
        if warns and (message := self.message()):
            warnings.warn(message, UnusualText, stacklevel=5)

    def message(self) -> str:
        """Return what is unusual, and what to do about it; "" if nothing is."""
        long = f"longer than any in training ({self.longest} tokens)"
        parts = []
        for numbers, problem, remedy in (
            (self.long, f"are {long}", "Split them into sentences."),
            (
                self.unknown,
                "consist mostly of characters that the vocabulary lacks",
                "Are they in the model's source language?",
            ),
        ):
            if numbers:
                listed = ", ".join(map(str, numbers[:SHOWN])) + ", .." * (len(numbers) > SHOWN)
                parts.append(
                    f"{len(numbers):,} of {self.count:,} {self.what} {problem}: {listed}. {remedy}"
                )
        if self.unmet:
            listed = ", ".join(f"{number} ({word!r})" for number, word in self.unmet[:SHOWN])
            parts.append(
                "Translations of the glossary were left out, which do not fit or which the vocabulary cannot "
                f"spell, of {self.what} {listed}{', ..' * (len(self.unmet) > SHOWN)}."
            )
        return " ".join(parts)
