"""Which word of the synthetic `demo` corpus came from which: marks that travel within the words.

While a sentence is traced, each word of it carries marks, characters that occur in no language. What
stands for the same thing in both languages has the same mark, through declension, word order and
contraction: "the old dog" and "den alten Hund" share three. A German word may have several ("im" is
"in" and "dem"); its last mark says which English word it is linked with.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import re
from collections.abc import Iterator

from keras_attention_viewer.tokens import split_words

Link = tuple[int, int]

_FIRST, _COUNT = 0xE000, 6400  # Unicode's private use area; no sentence has so many marks
_MARK = re.compile(f"[{chr(_FIRST)}-{chr(_FIRST + _COUNT - 1)}]")
_fresh: Iterator[int] | None = None
# English expressions whose words stand in another order, or are more, than the German ones.
_GERMAN_ORDER = {"two days ago": "ago two days", "in the summer": "in summer"}


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Within this context words are marked; without it `new_mark` gives none."""
    global _fresh
    _fresh = itertools.count()
    try:
        yield
    finally:
        _fresh = None


def new_mark() -> str:
    """Return a mark that no other word of the sentence has; empty unless a sentence is traced."""
    return "" if _fresh is None else chr(_FIRST + next(_fresh) % _COUNT)


def marked(text: str, mark: str) -> str:
    """Return the text with this mark on each of its words, before a comma at the end."""
    if not mark or not text:
        return text
    return " ".join(
        word.removesuffix(",") + mark + "," * word.endswith(",") for word in text.split()
    )


def marked_first(text: str, mark: str) -> str:
    """Return the text with this mark on its first word."""
    first, space, rest = text.partition(" ")
    return marked(first, mark) + space + rest


def linked(english: str, german: str) -> tuple[str, str]:
    """Return an expression in both languages with its words linked.

    Words are linked in their order; if one side is a single word, with the longest word of the other
    language (an English preposition such as "in front of"), or with all (a German one, "heute Abend").
    """
    ours, theirs = english.split(), german.split()
    marks = {word: new_mark() for word in ours}
    order = _GERMAN_ORDER.get(english, english).split()
    if len(order) == len(theirs):
        pass
    elif len(theirs) == 1:
        order = [max(ours, key=len)]
    else:
        order = ours[:1] * len(theirs)
    return (
        " ".join(marked(word, marks[word]) for word in ours),
        " ".join(marked(word, marks[other]) for word, other in zip(theirs, order, strict=True)),
    )


def marks_of(text: str) -> str:
    """Return the marks in a text."""
    return "".join(_MARK.findall(text))


def unmarked(text: str) -> str:
    """Return the text without its marks."""
    return _MARK.sub("", text)


def word_links(english: str, german: str) -> tuple[Link, ...]:
    """Links of a marked sentence pair: indices of an English and a German word, as `split_words` counts.

    A word that is not in the other language has no link, and no German word more than one. Of a mark
    that is there several times in both, the first are linked with the first.

    >>> with traced():
    ...     pair = [linked("because of", "wegen"), linked("the", "des"), linked("storm", "Sturms")]
    >>> english, german = (" ".join(side) + "." for side in zip(*pair, strict=True))
    >>> unmarked(english), unmarked(german), word_links(english, german)
    ('because of the storm.', 'wegen des Sturms.', ((0, 0), (2, 1), (3, 2)))
    """
    places = collections.defaultdict(list)
    for index, word in enumerate(split_words(english)):
        for mark in marks_of(word):
            places[mark].append(index)
    uses: collections.Counter[str] = collections.Counter()
    links = []
    for index, word in enumerate(split_words(german)):
        known = [mark for mark in marks_of(word) if mark in places]
        if known:
            there = places[known[-1]]
            links.append((there[min(uses[known[-1]], len(there) - 1)], index))
            uses[known[-1]] += 1
    return tuple(sorted(links))
