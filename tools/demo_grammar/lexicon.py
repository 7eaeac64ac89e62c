"""Lexemes of the synthetic `demo` corpus: `words` read into records, forms derived by rule."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tools.demo_grammar.words import ADJECTIVES, ADJECTIVES_OF, NOUNS, VERBS


class Noun(NamedTuple):
    """A noun pair: English forms, German gender, German forms by number and case, kind of thing."""

    english: str
    english_plural: str
    gender: str
    german: dict[str, tuple[str, str, str, str]]  # "singular", "plural": nom, acc, dat, gen
    kind: str


class Verb(NamedTuple):
    """A verb pair with the English particle and the German separable prefix."""

    english: str
    past: str
    particle: str
    movable: bool
    infinitive: str
    third: str
    participle: str
    prefix: str
    auxiliary: str
    group: str

    @property
    def lemma(self) -> str:
        """English base form with its particle."""
        return f"{self.english} {self.particle}".strip()


class Adjective(NamedTuple):
    """An adjective pair: German as a predicate, German stem before endings."""

    english: str
    german: str
    stem: str


def _sibilant(word: str) -> bool:
    return word.endswith(("s", "x", "z", "ch", "sh"))


def add_s(word: str) -> str:
    """English -s of nouns and verbs: key -> keys, box -> boxes, carry -> carries, go -> goes."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if _sibilant(word) or word == "go" else "s")


def _add_ed(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def _entries(text: str) -> list[list[str]]:
    return [entry.split() for entry in text.split(";")]


def _noun(fields: list[str], kind: str, gender: str) -> Noun:
    english, _, english_plural = fields[0].partition("/")
    stem, plural = fields[1], fields[-1]
    ending = "" if gender == "f" else fields[2]
    oblique = stem + ending if ending in ("n", "en") else stem  # weak nouns
    forms = {"singular": (stem, oblique, oblique, stem + ending)}
    if plural != "-":
        dative = plural if plural[-1] in "ns" else plural + "n"
        forms["plural"] = (plural, plural, dative, plural)
    return Noun(english, english_plural or add_s(english), gender, forms, kind)


def _verb(fields: list[str], group: str) -> Verb:
    mark = "+" if "+" in fields[0] else "@"
    forms, _, particle = fields[0].partition(mark)
    english, _, past = forms.partition("/")
    prefix, _, infinitive = fields[1].rpartition("|")
    participle = fields[3].lstrip("*")
    auxiliary = "sein" if fields[3].startswith("*") else "haben"
    return Verb(
        english, past or _add_ed(english), particle, mark == "+",
        infinitive, fields[2], participle, prefix, auxiliary, group,
    )  # fmt: skip


@functools.cache
def nouns(*kinds: str) -> tuple[Noun, ...]:
    """Nouns of the given kinds, in the order of the table."""
    return tuple(
        _noun(fields, kind, gender)
        for (kind, gender), text in NOUNS.items()
        if kind in kinds
        for fields in _entries(text)
    )


@functools.cache
def verbs(group: str) -> tuple[Verb, ...]:
    """Verbs of one group."""
    return tuple(_verb(fields, group) for fields in _entries(VERBS[group]))


@functools.cache
def adjectives(kind: str) -> tuple[Adjective, ...]:
    """Adjectives that go with a kind of noun."""
    table = _entries(ADJECTIVES[ADJECTIVES_OF.get(kind, kind)])
    return tuple(Adjective(fields[0], fields[1], fields[-1]) for fields in table)
