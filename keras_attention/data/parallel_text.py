"""Parallel text as a stream of sentence pairs, and readers for its files."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keras_attention.data.normalization import normalize
from keras_attention.data.text_files import PathLike, existing_file, read_lines
from keras_attention.utils.arguments import Count, checked
from keras_attention.utils.checks import check_text

Pair = tuple[str, str]
LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class ParallelText:
    """Sentence pairs that can be iterated any number of times.

    The pairs of a file are read again on each pass, so memory does not grow with the file. Pairs with an
    empty side are included here; `TokenStore` drops them.

    Args:
        name: Label for messages and reports.
        pairs: Pairs (source, target) that can be iterated again: a list, `FilePairs` or `TsvPairs`.

    Raises:
        ValueError: If `pairs` can be iterated only once. While iterating: if a file is broken.

    >>> text = ParallelText("greetings", [("Good day.", "Guten Tag."), ("Hello!", "Hallo!")])
    >>> len(text)
    2
    >>> list(text.targets())
    ['Guten Tag.', 'Hallo!']
    """

    def __init__(self, name: str, pairs: Iterable[Pair]) -> None:
        if isinstance(pairs, Iterator | str | bytes) or not isinstance(pairs, Iterable):
            raise ValueError(
                "`pairs` must be iterable more than once, as a list is. "
                f"Received: {type(pairs).__name__}"
            )
        self.name = check_text("name", name)
        self._pairs = pairs
        self._summary: tuple[int, str] | None = None

    def __repr__(self) -> str:
        return f"ParallelText('{self.name}')"

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return self._scan()[0]

    def sources(self) -> Iterator[str]:
        """Iterate over the source sentences."""
        return (source for source, _ in self)

    def targets(self) -> Iterator[str]:
        """Iterate over the target sentences."""
        return (target for _, target in self)

    @checked
    def both_sides(self, at_most: Count | None = None) -> Iterator[str]:
        """Iterate over source and target sentences in turn, for example to train a tokenizer.

        Args:
            at_most: Largest number of sentences; if there are more, every n-th pair is taken. None for no
                limit.
        """
        step = 1
        if at_most is not None:
            step = max(1, -(-2 * len(self) // at_most))
        return itertools.chain.from_iterable(itertools.islice(self, 0, None, step))

    def fingerprint(self) -> str:
        """Return the SHA-256 of all pairs, which does not depend on the kind of file they come from."""
        return self._scan()[1]

    def read_through(self, visit: Callable[[Pair], None] | None = None) -> tuple[int, str]:
        """Read all pairs once, pass each to `visit`, and return their number and fingerprint.

        Raises:
            ValueError: If a pair is not two str, a sentence contains a line break, or there are no pairs
                with words on both sides.
        """
        count, digest, has_words = 0, hashlib.sha256(), False
        for count, pair in enumerate(self, start=1):
            if len(pair) != 2 or not all(isinstance(side, str) for side in pair):
                raise ValueError(
                    f"Pair {count} of '{self.name}' must be a source and a target, both str. "
                    f"Received: {pair!r}"
                )
            lines = "\n".join(pair)
            if lines.count("\n") > 1:
                raise ValueError(f"Pair {count} of '{self.name}' has a line break in it.")
            try:
                digest.update(f"{lines}\n".encode())
            except UnicodeEncodeError:
                raise ValueError(
                    f"Pair {count} of '{self.name}' holds half of a surrogate pair, which is no character. "
                    f"Was its file read with errors='surrogateescape'? Received: {pair!r}"
                ) from None
            has_words = has_words or all(map(normalize, pair))
            if visit is not None:
                visit(pair)
        if count == 0:
            raise ValueError(f"'{self.name}' has no sentence pairs.")
        if not has_words:
            raise ValueError(
                f"No pair of '{self.name}' has words on both sides, of {count:,} pairs."
            )
        return count, digest.hexdigest()

    def _scan(self) -> tuple[int, str]:
        if self._summary is None:
            self._summary = self.read_through()
        return self._summary


def zip_lines(sides: Sequence[Iterator[str]], names: Sequence[Any]) -> Iterator[Any]:
    """Yield tuples of line i of each of two or more files."""
    for number, lines in enumerate(itertools.zip_longest(*sides)):
        if None in lines:
            counts = [
                number + (line is not None) + sum(1 for _ in side)
                for line, side in zip(lines, sides, strict=True)
            ]
            other = next(i for i, count in enumerate(counts) if count != counts[0])
            raise ValueError(
                f"'{names[0]}' has {counts[0]} lines, '{names[other]}' has {counts[other]}. "
                "Line i of one must belong to line i of the other."
            )
        yield lines


class FilePairs:
    """Pairs from two files, line i of one and line i of the other."""

    def __init__(self, source: PathLike, target: PathLike) -> None:
        self.source, self.target = existing_file(source), existing_file(target)
        self.paths = (self.source, self.target)

    def __iter__(self) -> Iterator[Pair]:
        is_empty = True
        for pair in zip_lines((read_lines(self.source), read_lines(self.target)), self.paths):
            is_empty = False
            yield pair
        if is_empty:
            raise ValueError(f"'{self.source}' and '{self.target}' are empty.")


class ChainedPairs:
    """The pairs of several sources, one after the other."""

    def __init__(self, parts: Sequence[Iterable[Pair]]) -> None:
        self.parts = tuple(parts)

    def __iter__(self) -> Iterator[Pair]:
        return itertools.chain.from_iterable(self.parts)


class TsvPairs:
    """Pairs from one file with two columns, source and target, separated by a tab; or a third, the language.

    Lines without text, as they stand between documents, are no pairs.

    Args:
        path: The file.
        has_language: Whether a third column names the language of the target, such as "de". The source then
            begins with the tag "<2de>".

    Attributes:
        blank_lines: Number of lines without text; known after the first pass.
        tags: The tags; known after the first pass.
    """

    def __init__(self, path: PathLike, has_language: bool = False) -> None:
        self.has_language = has_language
        self.tags: set[str] = set()
        self.path = existing_file(path)
        self.paths = (self.path,)
        self.blank_lines = 0

    def __iter__(self) -> Iterator[Pair]:
        blank_lines = number = 0
        lines = enumerate(read_lines(self.path), start=1)
        for number, line in lines:
            columns = line.split("\t")
            # A tab alone is a pair with empty sides; two tabs alone name no language.
            has_text = not self.has_language or bool(normalize(line))
            if len(columns) == 2 + self.has_language and has_text:
                yield self._source(columns, number), columns[1]
            elif not normalize(line):  # Nor has a byte order mark between joined files any text.
                blank_lines += 1
            else:
                tabs = 1 + self.has_language
                others = [
                    other for other, rest in lines if normalize(rest) and rest.count("\t") != tabs
                ]
                wanted = "one tab, between source and target"
                if self.has_language:
                    wanted = "two tabs, between source, target and its language"
                raise ValueError(
                    f"'{self.path}', line {number}: expected {wanted}. "
                    f"Received {len(columns) - 1} tabs: {line[:80]!r}.{_also(others)}"
                )
        if number == blank_lines:
            raise ValueError(f"'{self.path}' is empty.")
        self.blank_lines = blank_lines

    def _source(self, columns: Sequence[str], number: int) -> str:
        if not self.has_language:
            return columns[0]
        language = columns[2].strip()
        if not LANGUAGE.fullmatch(language):
            raise ValueError(
                f"'{self.path}', line {number}: the third column must be a language, such as de or pt_BR. "
                f"Received: {columns[2][:80]!r}"
            )
        self.tags.add(f"<2{language}>")
        return f"<2{language}> {columns[0]}" if normalize(columns[0]) else columns[0]


def _also(numbers: Sequence[int], shown: int = 10) -> str:
    """Return a sentence that lists other lines with the same fault, so that all can be fixed at once."""
    if not numbers:
        return ""
    listed = ", ".join(map(str, numbers[:shown])) + (", .." if len(numbers) > shown else "")
    return f" The same is true of {len(numbers):,} other lines: {listed}."
