"""A glossary: terms of source texts, and the translations that must then occur."""

from __future__ import annotations

import itertools
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.normalization import normalize
from keras_attention.data.text_files import read_lines
from keras_attention.decoding.requests import Request, contains, joints_of, phrase_ids
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.utils.checks import has_surrogate, shown
from keras_attention.utils.scripts import is_letter
from keras_attention.utils.sides import unknown_of

MOST_TERMS = 100_000
LONGEST_SIDE = 200  # characters


class Glossary:
    """Finds terms in texts, and has their translations occur, as whole words.

    A term is found as a whole word, or whole words: no letter, digit or mark of its script stands before or
    behind it, but in scripts without spaces. It is found as it is written, or in any case if it is written
    in small letters. From left to right, the longest term wins, and terms do not overlap.

    Args:
        terms: The translation of each term.

    Raises:
        ValueError: If they are no such mapping, or a side is empty or longer than 200 characters.

    Example:

    >>> glossary = Glossary({"hot dog": "Hotdog", "dog": "Köter", "US": "USA"})
    >>> glossary.translations("Hot dog or dog, he told us."), glossary.translations("Dogs")
    (['Hotdog', 'Köter'], [])
    """

    def __init__(self, terms: Mapping[str, str]):
        if not isinstance(terms, Mapping) or not terms or len(terms) > MOST_TERMS:
            raise ValueError(
                f"A glossary needs a dict of 1 to {MOST_TERMS:,} terms and their translations. Received: "
                + (f"{len(terms):,} terms" if isinstance(terms, Mapping) else repr(terms))
            )
        self._exact = _checked(
            (f"entry {place} of the glossary", pair) for place, pair in enumerate(terms.items())
        )
        self._any_case = {
            _folded(term): translation
            for term, translation in self._exact.items()
            if term == term.lower()
        }
        self._lengths = sorted({len(term) for term in self._exact}, reverse=True)

    def translations(self, text: str) -> list[str]:
        """Return the translations of the terms in a text, each once, in the order of their terms."""
        return list(dict.fromkeys(self._found(normalize(text))))

    def required(
        self, requests: Sequence[Request], tokenizer: Any, noted: UnusualTexts
    ) -> list[Request]:
        """Return requests with the translations of their terms as further phrases.

        `noted` collects the translations that do not fit, or that the vocabulary cannot spell.
        """
        found = [self.translations(request.text) for request in requests]
        words, joints = list(dict.fromkeys(itertools.chain(*found))), joints_of(tokenizer)
        ids_of = dict(zip(words, phrase_ids(tokenizer, words), strict=True))
        unknown = unknown_of(tokenizer, "target")
        results = []
        for index, (request, translations) in enumerate(zip(requests, found, strict=True)):
            for word in translations:
                ids = ids_of[word]
                is_begun = contains(request.prefix, ids, joints, is_ended=False)
                if ids and (is_begun or any(contains(had, ids, joints) for had in request.phrases)):
                    continue
                asked = len(request.prefix) + sum(map(len, request.phrases)) + len(ids)
                if not ids or unknown in ids or asked >= request.longest:
                    noted.unmet.append((noted.first + index, word))
                else:
                    request = request._replace(phrases=[*request.phrases, ids])
            results.append(request)
        return results

    def _found(self, text: str) -> Iterator[str]:
        folded, start = _folded(text), 0
        is_boundary = [_is_boundary(text, place) for place in range(len(text) + 1)]
        while start < len(text):
            end = start + 1
            for length in self._lengths if is_boundary[start] else ():
                if not any(is_boundary[start + length : start + length + 1]):
                    continue
                here = slice(start, start + length)
                found = self._exact.get(text[here]) or self._any_case.get(folded[here])
                if found is not None:
                    yield found
                    end = start + length
                    break
            start = end


def read_glossary(path: str | os.PathLike[str]) -> Glossary:
    """Return the glossary of a UTF-8 file with a term, a tab and its translation in each line.

    Raises:
        ValueError: If the file is no text, or a line has no two sides, or another translation of a term than
            an earlier one. The message names the line.
    """
    terms = _checked(_entries(path))
    if not terms:
        raise ValueError(f"'{path}' holds no terms, only empty lines.")
    return Glossary(terms)


def _entries(path: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        where, sides = f"line {number} of '{path}'", line.split("\t")
        if not line.strip():
            continue
        if len(sides) != 2:
            raise ValueError(
                f"A glossary has a term, a tab and its translation in each line. Received: {where} with "
                f"{len(sides) - 1} tabs: {line[:LONGEST_SIDE]!r}"
            )
        yield where, sides


def check_glossary(name: str, value: Any) -> Glossary:
    """Return a glossary, made of a dict or a file; raise a ValueError if it is anything else."""
    if isinstance(value, str | os.PathLike) and Path(value).is_file():
        return read_glossary(value)
    if not isinstance(value, Glossary | Mapping):
        raise ValueError(
            f"`{name}` must be a dict of terms and their translations, or a file with a term, a tab and its "
            f"translation in each line. Received: {name}={shown(value)}"
        )
    return value if isinstance(value, Glossary) else Glossary(value)


def _checked(entries: Iterable[tuple[str, Iterable[Any]]]) -> dict[str, str]:
    """Return the terms of entries, where each stands and its two sides; refuse two translations of one."""
    terms: dict[str, str] = {}
    places: dict[str, str] = {}
    for where, sides in entries:
        term, translation = (_side(side, where) for side in sides)
        if terms.setdefault(term, translation) != translation:
            raise ValueError(
                f"{where} translates {term!r} by {translation!r}, but {places[term]} by {terms[term]!r}. "
                "Leave one out."
            )
        places.setdefault(term, where)
        if len(terms) > MOST_TERMS:  # before all of a text that is no glossary is in memory
            raise ValueError(
                f"A glossary needs 1 to {MOST_TERMS:,} terms and their translations. Received: "
                f"{len(terms):,} terms up to {where}"
            )
    return terms


def _side(side: Any, where: str) -> str:
    text = normalize(side) if isinstance(side, str) else ""
    if not text or len(text) > LONGEST_SIDE or has_surrogate(text):
        raise ValueError(
            f"A term and its translation must be text of 1 to {LONGEST_SIDE} characters. Received: {where} "
            f"with {str(side)[:LONGEST_SIDE]!r}"
        )
    return text


def _folded(text: str) -> str:
    """Return a text in one case, with as many characters."""
    return "".join(
        next((c for c in (old.casefold(), old.lower()) if len(c) == 1), old.lower()[0])  # of İ, i
        for old in text
    )


def _is_boundary(text: str, place: int) -> bool:
    """Whether a word may begin or end before a character of a text."""
    if place in (0, len(text)):
        return True
    if unicodedata.category(text[place])[0] == "M":  # A mark belongs to what is before it.
        return False
    return not (is_letter(text[place - 1]) and is_letter(text[place]))
