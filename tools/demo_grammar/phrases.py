"""The synchronous grammar of the synthetic `demo` corpus, phrases: English and German side by side.

A `Phrase` is one noun phrase or pronoun spelled out in both languages. Article, adjective and noun
of the German side agree in gender, case and number, with strong, weak and mixed endings. `clauses`
builds on phrases.
"""

from __future__ import annotations

from typing import NamedTuple

from tools.demo_grammar.lexicon import Adjective, Noun
from tools.demo_grammar.links import marked, marks_of, new_mark, unmarked

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
Endings = dict[str, tuple[str, ...]]


def _endings(**rows: str) -> Endings:
    return {row: tuple(text.replace("-", "").split(" ")) for row, text in rows.items()}


# By gender (p: plural), in the order nominative, accusative, dative, genitive; "-" is no ending.
ARTICLE = _endings(
    m="der den dem des", f="die die der der", n="das das dem des", p="die die den der"
)
DER_WORD = _endings(m="er en em es", f="e e er er", n="es es em es", p="e e en er")
EIN_WORD = _endings(m="- en em es", f="e e er er", n="- - em es", p="e e en er")
STRONG = _endings(m="er en em en", f="e e er er", n="es es em en", p="e e en er")
WEAK = _endings(m="e en en en", f="e e en en", n="e e en en", p="en en en en")
MIXED = _endings(m="er en en en", f="e e en en", n="es es en en", p="en en en en")
BARE = _endings(m="- - - -", f="- - - -", n="- - - -", p="- - - -")
RELATIVE = _endings(
    m="der den dem dessen", f="die die der deren", n="das das dem dessen", p="die die denen deren"
)
PERSONAL = _endings(m="er ihn ihm", f="sie sie ihr", n="es es ihm", p="sie sie ihnen")
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur", "von dem": "vom"}


class Determiner(NamedTuple):
    """English determiner, German stem and its endings, endings of an adjective after it."""

    english: str
    stem: str
    endings: Endings
    adjective_endings: Endings


DETERMINERS = {
    determiner.english: determiner
    for determiner in (
        Determiner("the", "", ARTICLE, WEAK),
        *(Determiner(english, "dies", DER_WORD, WEAK) for english in ("this", "these")),
        Determiner("every", "jed", DER_WORD, WEAK),
        Determiner("all", "all", DER_WORD, WEAK),
        Determiner("a", "ein", EIN_WORD, MIXED),
        Determiner("my", "mein", EIN_WORD, MIXED),
        Determiner("our", "unser", EIN_WORD, MIXED),
        Determiner("his", "sein", EIN_WORD, MIXED),
        Determiner("her", "ihr", EIN_WORD, MIXED),
        Determiner("their", "ihr", EIN_WORD, MIXED),
        Determiner("many", "viel", DER_WORD, STRONG),
        Determiner("some", "einig", DER_WORD, STRONG),
        Determiner("", "", BARE, STRONG),
        Determiner("two", "zwei", BARE, STRONG),
        Determiner("three", "drei", BARE, STRONG),
        Determiner("four", "vier", BARE, STRONG),
    )
}
KEIN = Determiner("", "kein", EIN_WORD, MIXED)


class Phrase(NamedTuple):
    """A noun phrase or pronoun: English, German in four cases, and what other words agree with.

    Attributes:
        english, english_object: English as a subject and as an object ("he", "him").
        german: Nominative, accusative, dative, genitive.
        gender, plural, person: For agreement; gender is "m", "f" or "n".
        noun: Head noun, or the noun that a pronoun stands for.
        negative: German forms with "kein", of indefinite phrases; else empty.
        afterthought: German relative clause, moved to the end of the clause that the phrase is in.
    """

    english: str
    english_object: str
    german: tuple[str, ...]
    gender: str
    plural: bool = False
    person: int = 3
    noun: Noun | None = None
    negative: tuple[str, ...] = ()
    afterthought: str = ""
    is_pronoun: bool = False

    @property
    def agreement(self) -> str:
        """Row of the ending tables: the gender, or "p" in the plural."""
        return "p" if self.plural else self.gender


def noun_phrase(
    noun: Noun, determiner: Determiner, adjective: Adjective | None = None, plural: bool = False
) -> Phrase:
    """Spells out determiner, adjective and noun in English and in the four German cases.

    >>> from tools.demo_grammar.lexicon import adjectives, nouns
    >>> bear = next(noun for noun in nouns("animal") if noun.english == "bear")
    >>> phrase = noun_phrase(bear, DETERMINERS["a"], adjectives("animal")[0])
    >>> phrase.english
    'an old bear'
    >>> phrase.german
    ('ein alter Bär', 'einen alten Bären', 'einem alten Bären', 'eines alten Bären')
    """
    words = [adjective.english] if adjective else []
    words.append(noun.english_plural if plural else noun.english)
    article = determiner.english
    if article == "a" and (words[0][0] in "aeiou" and words[0] != "useful" or words[0] == "honest"):
        article = "an"
    marks = new_mark(), new_mark(), new_mark()
    words = [marked(word, mark) for word, mark in zip(words[::-1], marks[::-1], strict=False)][::-1]
    english = " ".join([marked(article, marks[0]), *words] if article else words)
    german = _decline(noun, determiner, adjective, plural, marks)
    indefinite = determiner.english in ("a", "")
    return Phrase(
        english, english, german, noun.gender, plural, noun=noun,
        negative=_decline(noun, KEIN, adjective, plural, marks) if indefinite else (),
    )  # fmt: skip


def _decline(
    noun: Noun,
    determiner: Determiner,
    adjective: Adjective | None,
    plural: bool,
    marks: tuple[str, str, str],
) -> tuple[str, ...]:
    row = "p" if plural else noun.gender
    articles = [f"{determiner.stem}{ending}{marks[0]} " for ending in determiner.endings[row]]
    if not determiner.stem and not determiner.endings[row][0]:
        articles = [""] * 4
    attributes = [""] * 4
    if adjective:
        endings = determiner.adjective_endings[row]
        attributes = [f"{adjective.stem}{ending}{marks[1]} " for ending in endings]
    forms = noun.german["plural" if plural else "singular"]
    words = zip(articles, attributes, forms, strict=True)
    return tuple([f"{a}{b}{c}{marks[2]}" for a, b, c in words])


def its(owner: Phrase) -> Determiner:
    """Its: the German stem follows the gender of the owner, the ending that of the thing owned."""
    return Determiner("its", "ihr" if owner.gender == "f" else "sein", EIN_WORD, MIXED)


def of_name(name: str) -> Determiner:
    """Anna's, "Annas": after a genitive the adjective has strong endings."""
    return Determiner(f"{name}'s", f"{name}s", BARE, STRONG)


def whose(owner: Phrase) -> Determiner:
    """Whose, in a relative clause about the owner: "dessen alter Hund"."""
    return Determiner("whose", RELATIVE[owner.agreement][GENITIVE], BARE, STRONG)


def of_person(owned: Phrase, owner: Phrase) -> Phrase:
    """Return the king's dog, "der Hund des Königs", from "the dog" and "the king"."""
    article, _, rest = owned.english.partition(" ")
    english = f"{owner.english}'s {rest if unmarked(article) == 'the' else owned.english}"
    return _with_genitive(owned, english, owner)


def of_place(part: Phrase, whole: Phrase) -> Phrase:
    """Return the door of the house, "die Tür des Hauses", from "the door" and "the house"."""
    return _with_genitive(part, f"{part.english} of {whole.english}", whole)


def _with_genitive(phrase: Phrase, english: str, owner: Phrase) -> Phrase:
    german = tuple(f"{form} {owner.german[GENITIVE]}" for form in phrase.german)
    return phrase._replace(english=english, english_object=english, german=german)


def pronoun(phrase: Phrase) -> Phrase:
    """Return the pronoun for a phrase: "it" is er, sie or es by the gender of the German noun."""
    if phrase.plural:
        english = ("they", "them")
    elif phrase.noun and phrase.noun.kind != "person":
        english = ("it", "it")
    else:
        english = {"m": ("he", "him"), "f": ("she", "her")}[phrase.gender]
    forms = PERSONAL[phrase.agreement]
    return renewed(
        Phrase(*english, forms, phrase.gender, phrase.plural, noun=phrase.noun, is_pronoun=True)
    )


def renewed(phrase: Phrase) -> Phrase:
    """Return a phrase of one word with a mark of its own."""
    mark = new_mark()
    return phrase._replace(
        english=marked(phrase.english, mark),
        english_object=marked(phrase.english_object, mark),
        german=tuple(marked(form, mark) for form in phrase.german),
    )


SPEAKER = Phrase("I", "me", ("ich", "mich", "mir"), "m", person=1, is_pronoun=True)
SPEAKERS = Phrase("we", "us", ("wir", "uns", "uns"), "m", True, person=1, is_pronoun=True)


def named(name: str, gender: str) -> Phrase:
    """Return a person's name, which does not inflect before the genitive."""
    return renewed(Phrase(name, name, (name, name, name, f"{name}s"), gender))


def prepositional(preposition: str, phrase: Phrase, case: int) -> str:
    """German preposition with its case, contracted with a definite article: "in dem" is "im".

    >>> from tools.demo_grammar.lexicon import nouns
    >>> garden = noun_phrase(nouns("place")[0], DETERMINERS["the"])
    >>> prepositional("in", garden, DATIVE), prepositional("in", garden, ACCUSATIVE)
    ('im Garten', 'in den Garten')
    """
    article, _, rest = phrase.german[case].partition(" ")
    pair = f"{preposition} {article}"
    contracted = CONTRACTIONS.get(unmarked(pair))
    if contracted:
        pair = contracted + marks_of(article) + marks_of(preposition)
    return f"{pair} {rest}".rstrip()
