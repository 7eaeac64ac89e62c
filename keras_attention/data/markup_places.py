"""Where the marks of a source text stand in its translation, and the translation written with them."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from keras_attention.utils.scripts import is_letter, word_spans
from keras_attention_viewer.tokens import is_punctuation, split_words

# Whether a space was before and behind a mark: False beside a letter or digit, but of scripts without spaces;
# None beside anything else.
Spaces = tuple[bool | None, bool | None]


@dataclasses.dataclass(eq=False)
class Mark:
    """A pair of tags, or what stands by itself, with what is inside."""

    opening: str = ""  # its text; of a pair, the opening tag
    closing: str = ""  # the closing tag of a pair; else empty
    # Where its inside begins and ends: offsets in the plain text, then numbers of parts.
    start: int = 0
    end: int = 0
    spaces: Spaces = (None, None)  # of what stands by itself, whether spaces were around it
    inside: list[Mark] = dataclasses.field(default_factory=list)  # the marks inside, in order
    # Parts of the translation that it encloses, from and to; where both agree, it stands before that
    # part.
    place: tuple[int, int] = (0, 0)


class Words:
    """The words of a text, as of `word_spans`, in parts: punctuation at either end is a part of its own.

    Attributes:
        texts: The parts.
        starts, ends: Their offsets in the text.
        follows_space: Whether a space is before each.
        words: For each word its punctuation before, its core and its punctuation behind, as numbers of
            parts; None for what it has not.
    """

    def __init__(self, text: str):
        self.texts: list[str] = []
        self.starts: list[int] = []
        self.follows_space: list[bool] = []
        self.words: list[tuple[int | None, int, int | None]] = []
        for at, end in word_spans(text):
            parts, first = split_words(text[at:end]), len(self.texts)
            core = next((i for i, part in enumerate(parts) if not is_punctuation(part)), 0)
            before, behind = (first if core else None), (first + core + 1)
            self.words.append((before, first + core, behind if core + 1 < len(parts) else None))
            self.texts += parts
            self.starts += [
                at + size for size in itertools.accumulate(map(len, parts[:-1]), initial=0)
            ]
            is_first = text[at - 1 : at].isspace()
            self.follows_space += [is_first, *[False] * (len(parts) - 1)]
        self.ends = [start + len(part) for start, part in zip(self.starts, self.texts, strict=True)]


def check_links(
    links: Iterable[tuple[int, int]], source: Words, target: Words
) -> list[tuple[int, int]]:
    """Return links between words as links between parts."""
    found = []
    for link in links:
        for side, number, words in zip(
            ("source", "target"), link, (source.words, target.words), strict=True
        ):
            if not 0 <= number < len(words):
                raise ValueError(
                    f"The link {link[0]}-{link[1]} has a {side} word that is not there: the {side} has "
                    f"{len(words)} words, counted from 0."
                )
        parts = zip(source.words[link[0]], target.words[link[1]], strict=True)
        found += [
            (read, written) for read, written in parts if read is not None and written is not None
        ]
    return found


def number_marks(root: Mark, source: Words) -> None:
    """Replace the offsets of all marks by numbers of parts of the source."""
    waiting = [root]
    while waiting:
        mark = waiting.pop()
        waiting += mark.inside
        first = bisect.bisect_right(source.ends, mark.start)
        last = bisect.bisect_left(source.starts, mark.end) if mark.end > mark.start else first
        mark.start, mark.end = first, max(first, last)


def place_marks(root: Mark, source: Words, target: Words, links: Sequence[tuple[int, int]]) -> None:
    """Set the places of all marks."""
    targets: list[list[int]] = [[] for _ in source.texts]
    is_linked = [False] * len(target.texts)
    for read, written in sorted(set(links)):
        targets[read].append(written)
        is_linked[written] = True
    root.start, root.end, root.place = 0, len(source.texts), (0, len(target.texts))
    waiting = [root]
    while waiting:
        mark = waiting.pop()
        waiting += mark.inside
        _place_inside(mark, targets, is_linked)


def _place_inside(parent: Mark, targets: list[list[int]], is_linked: list[bool]) -> None:
    """Set the places of the marks that are directly inside one: apart from each other, and within it."""
    low, high = parent.place
    owners: dict[int, Mark] = {}
    for mark in parent.inside:
        for written in itertools.chain.from_iterable(targets[mark.start : mark.end]):
            if low <= written < high:
                owners.setdefault(written, mark)
    owned: dict[Mark, list[int]] = {}
    for written in sorted(owners):
        owned.setdefault(owners[written], []).append(written)
    rows: list[Mark] = []
    for mark in parent.inside:
        row = _best_row(mark, owned.get(mark, []), owners, is_linked)
        if mark.start < mark.end and (mark.start, mark.end) == (parent.start, parent.end):
            row = low, high
        if row is not None and row[0] < row[1]:
            mark.place = row
            rows.append(mark)
    rows.sort(key=lambda mark: mark.place)
    placed = set(rows)
    for mark in (mark for mark in parent.inside if mark not in placed):
        at = _point(mark, parent, targets)
        number = bisect.bisect_left(rows, at, key=lambda row: row.place[0]) - 1
        if number >= 0 and at < rows[number].place[1]:
            at = rows[number].place[mark.start > rows[number].start]
        mark.place = at, at


def _best_row(
    mark: Mark, own: list[int], owners: dict[int, Mark], is_linked: list[bool]
) -> tuple[int, int] | None:
    """Return the parts in a row with the most of a mark's own, less those of other text.

    None of them belongs to another mark.
    """
    best, row = 0, None
    score = start = 0
    for written in range(own[0], own[-1] + 1) if own else ():
        owner = owners.get(written)
        if owner is mark:
            start = start if score > 0 else written
            score = max(score, 0) + 1
            if score > best:
                best, row = score, (start, written + 1)
        elif owner is not None:
            score = 0
        else:
            score -= is_linked[written]
    return row


def _point(mark: Mark, parent: Mark, targets: list[list[int]]) -> int:
    """Return before which part a mark stands that encloses none: beside the neighbour that it touches."""
    low, high = parent.place
    at = mark.start
    if at <= parent.start:
        return low
    if at >= parent.end:
        return high

    def linked(number: int) -> list[int]:
        return [written for written in targets[number] if low <= written < high]

    if mark.spaces[1] is False and linked(at):
        return min(linked(at))
    for number in range(at - 1, parent.start - 1, -1):
        if linked(number):
            return max(linked(number)) + 1
    for number in range(at, parent.end):
        if linked(number):
            return min(linked(number))
    return min(low + at - parent.start, high)


def joined(root: Mark, texts: Sequence[str], target: Words) -> str:
    """Return the translation with all marks at their places."""
    written: list[str] = []
    between: list[Piece] = []
    before: Piece | None = None
    number = 0
    for piece in _in_order(root, texts):
        if piece.kind != "word":
            between.append(piece)
            continue
        has_gap = before is not None and target.follows_space[number]
        written += [*_spaced(before, between, piece, has_gap), piece.text]
        before, between, number = piece, [], number + 1
    return "".join([*written, *_spaced(before, between, None, False)])


class Piece(NamedTuple):
    """What is written: a word, an "open" or "close" tag of a pair, or a mark "alone"."""

    kind: str
    text: str
    spaces: Spaces = (None, None)


def _in_order(root: Mark, texts: Sequence[str]) -> Iterator[Piece]:
    done = 0
    opened = [(root, iter(_sorted(root.inside)))]
    while opened:
        mark, waiting = opened[-1]
        inner = next(waiting, None)
        upto = mark.place[1] if inner is None else inner.place[0]
        for text in texts[done:upto]:
            yield Piece("word", text)
        done = max(done, upto)
        if inner is None:
            opened.pop()
            if mark.closing:
                yield Piece("close", mark.closing)
        elif inner.closing:
            yield Piece("open", inner.opening)
            opened.append((inner, iter(_sorted(inner.inside))))
        else:
            yield Piece("alone", inner.opening, inner.spaces)


def _sorted(marks: list[Mark]) -> list[Mark]:
    """Sort marks by their places; at the same one, what encloses nothing comes first."""
    return sorted(marks, key=lambda mark: (mark.place[0], mark.place[0] < mark.place[1]))


def _spaced(
    before: Piece | None, marks: Sequence[Piece], behind: Piece | None, has_gap: bool
) -> Iterator[str]:
    """Yield the marks between two parts of the translation, and the spaces around them."""
    tags: list[Piece] = []
    is_spaced = not has_gap
    for piece in marks if behind is None else [*marks, behind]:
        if piece.kind in ("open", "close"):
            tags.append(piece)
            continue
        wanted = _wants_space(before, piece, has_gap) or (piece is behind and not is_spaced)
        is_spaced |= wanted
        at = _gap_among(tags) if wanted else -1
        for number, tag in enumerate(tags):
            yield f" {tag.text}" if number == at else tag.text
        if at == len(tags):
            yield " "
        if piece is not behind:
            yield piece.text
        before, tags = piece, []
    yield from (tag.text for tag in tags)


def _wants_space(before: Piece | None, behind: Piece, has_gap: bool) -> bool:
    """Whether a space comes between two neighbours, which are words or marks that stand alone."""
    if before is None:
        return False
    words = [each.text for each in (before, behind) if each.kind == "word"]
    if not has_gap and any(map(is_punctuation, words)):
        return False
    wishes = before.spaces[1], behind.spaces[0]
    if len(words) == 1:  # %1 beside 2 is no %12.
        has_gap |= is_letter(before.text[-1] if before.kind == "word" else behind.text[0])
    # Beside a letter, or where words have a space between them, a mark is a word of its own unless it touched
    # a letter.
    return True in wishes or (has_gap and bool(words) and False not in wishes)


def _gap_among(tags: Sequence[Piece]) -> int:
    """Return before which tag a space comes: behind those that close, before those that open."""
    kinds = ["close", *(tag.kind for tag in tags), "open"]
    pairs = enumerate(itertools.pairwise(kinds))
    return next(i for i, (left, right) in pairs if left == "close" and right == "open")
