"""Simple sentences of the synthetic `demo` corpus, each construction a function of a `Sampler`.

A construction returns the English and the German sentence without capital and closing mark (a
question ends with "?"), or None for a draw that makes no good sentence. German commas are words of
their own. `sentences.finish` puts all that right.
"""

from __future__ import annotations

import dataclasses
import functools

from tools.demo_grammar.clauses import Clause, object_case
from tools.demo_grammar.lexicon import Noun, Verb, nouns, verbs
from tools.demo_grammar.links import linked, unmarked
from tools.demo_grammar.phrases import (
    ACCUSATIVE,
    DATIVE,
    DETERMINERS,
    its,
    of_person,
    of_place,
    prepositional,
)
from tools.demo_grammar.sampler import MODALITIES, THE, Sampler
from tools.demo_grammar.words import COMMENTS, OBJECT_KINDS, THINGS

Sentence = tuple[str, str]

DIRECTIONS = (
    ("into", "in", ACCUSATIVE),
    ("to", "zu", DATIVE),
    ("through", "durch", ACCUSATIVE),
    ("out of", "aus", DATIVE),
)
SURFACES = {
    "on": "auf",
    "under": "unter",
    "behind": "hinter",
    "next to": "neben",
    "in front of": "vor",
}
ANIMAL_VERBS = ("find", "need", "look for", "steal", "lose", "hide", "destroy", "bring back")
SIGHT_VERBS = ("admire", "describe", "draw", "destroy", "examine", "look at")
FURNITURE = ("table", "chair", "bed", "shelf", "cupboard", "piano", "box", "carpet", "ladder")
MOVABLE = tuple(
    "bottle cup glass lamp book letter bag key doll basket shoe ball knife candle radio suitcase "
    "plate hat umbrella newspaper".split()
)
BUILDINGS = tuple(
    "house hotel castle church school museum restaurant hospital library factory".split()
)
PARTS = ("garden", "kitchen", "cellar", "tower", "courtyard", "door", "window", "gate")
OF_PLACES = ("key", "door", "window", "gate", "picture", "map", "garden", "cellar", "kitchen")


@functools.cache
def chosen(names: tuple[str, ...]) -> tuple[Noun, ...]:
    """Nouns by their English names."""
    return tuple(noun for noun in nouns(*THINGS, "place") if noun.english in names)


@functools.cache
def separable_verbs() -> tuple[Verb, ...]:
    """Verbs with a prefix and an accusative object."""
    groups = [group for group in OBJECT_KINDS if group not in ("dative", "giving")]
    return tuple(verb for group in groups for verb in verbs(group) if verb.prefix)


def both(clause: Clause, front: tuple[str, str] | None = None) -> Sentence:
    """Return a main clause, with an adverbial in front if given: German then inverts subject and verb."""
    if front is None:
        return clause.english(), clause.german()
    return f"{front[0]} {clause.english()}", clause.german(front=front[1])


def statement(s: Sampler) -> Sentence:
    """Return the man did not find the old lamp in the garden yesterday."""
    negated = s.chance(0.2)
    subject, tense = s.subject(quantifiers=not negated), s.tense()
    if s.chance(0.75):
        return both(s.adorned(s.transitive(subject, tense, negated=negated)))
    return both(s.adorned(s.intransitive(subject, tense, negated)))


def separable(s: Sampler) -> Sentence:
    """Return the woman turns off the lamp: the German prefix closes the clause."""
    negated = s.chance(0.2)
    subject, tense = s.subject(quantifiers=not negated), s.pick(("present", "present", s.tense()))
    return both(
        s.adorned(s.transitive(subject, tense, verb=s.pick(separable_verbs()), negated=negated))
    )


def fronted(s: Sampler) -> Sentence:
    """Yesterday the man bought a lamp: verb second puts the German subject after the verb."""
    negated = s.chance(0.12)
    subject, tense = s.subject(quantifiers=not negated), s.tense()
    draw = s.pick((s.transitive, s.transitive, s.giving, s.intransitive, s.copula))
    clause = draw(subject, tense, negated=negated)
    if s.chance(0.2):
        return both(clause, s.pair(COMMENTS))
    if clause.verb and clause.verb.group not in ("giving", "person") and s.chance(0.35):
        return both(clause, s.position())
    return both(clause, s.time(tense, negated))


def modal(s: Sampler) -> Sentence:
    """Return the girl wanted to see the lion: the German infinitive closes the clause."""
    negated = s.chance(0.25)
    subject, tense = s.subject(quantifiers=not negated), s.pick(MODALITIES)
    draw = s.pick((s.transitive, s.transitive, s.transitive, s.giving, s.intransitive))
    clause = draw(subject, tense, negated=negated)
    if s.chance(0.2):
        return both(clause, s.time(tense, negated))
    return both(s.adorned(clause)) if clause.recipient is None else both(clause)


def dative(s: Sampler) -> Sentence | None:
    """Return the boy thanked his aunt: verbs with a dative object."""
    negated = s.chance(0.15)
    subject, tense = s.subject(quantifiers=not negated), s.tense()
    direct = s.subject(quantifiers=not negated) if s.chance(0.35) else None
    if direct and (
        direct.is_pronoun
        and subject.is_pronoun
        or unmarked(direct.english) == unmarked(subject.english)
    ):
        return None
    clause = s.transitive(subject, tense, "dative", direct=direct, negated=negated)
    time = s.time(tense, negated)
    if s.chance(0.3):
        return both(clause, time)
    return both(dataclasses.replace(clause, time=time if s.chance(0.4) else None))


def giving(s: Sampler) -> Sentence:
    """Return the queen gave the ring to the boy: recipient before thing in German."""
    negated = s.chance(0.15)
    subject, tense = s.subject(quantifiers=not negated), s.tense()
    clause = s.giving(subject, tense, negated)
    time = s.time(tense, negated)
    return both(dataclasses.replace(clause, time=time if s.chance(0.4) else None))


def copula(s: Sampler) -> Sentence:
    """Return the rooms of the hotel were dirty last year."""
    kind = s.pick(("person", "animal", "thing", "place", "event", "drink"))
    kinds = THINGS if kind == "thing" else (kind,)
    negated = s.chance(0.25)
    subject = s.phrase(*kinds, quantifiers=not negated)
    tense = s.tense() if kind != "event" else "past"
    clause = s.copula(subject, tense, negated)
    if tense != "present" or s.chance(0.3):
        clause.time = s.time(tense, negated) if kind != "event" else None
    elif not negated and s.chance(0.5):
        clause.frequency = linked(*(("always", "immer") if s.chance(0.5) else ("often", "oft")))
    return both(clause)


def its_thing(s: Sampler) -> Sentence:
    """Return the cat lost its ball; we admired the castle and its garden: sein or ihr by German gender."""
    tense = s.tense()
    if s.chance(0.5):
        owner = s.phrase("animal", plural=False, quantifiers=False)
        thing = s.phrase("object", plural=False, determiner=its(owner))
        options = [
            v for group in ("goods", "thing") for v in verbs(group) if v.lemma in ANIMAL_VERBS
        ]
        return both(s.adorned(s.transitive(owner, tense, verb=s.pick(options), direct=thing)))
    place = s.phrase(plural=False, determiner=THE, choices=chosen(BUILDINGS))
    part = s.phrase(determiner=its(place), choices=chosen(PARTS), adjective=0.3)
    both_and, und = linked("and", "und")
    pair = place._replace(
        english_object=f"{place.english} {both_and} {part.english}",
        german=tuple(f"{a} {und} {b}" for a, b in zip(place.german, part.german, strict=True)),
    )
    verb = s.pick([verb for verb in verbs("thing") if verb.lemma in SIGHT_VERBS])
    clause = s.transitive(s.subject(), tense, verb=verb, direct=pair)
    return both(clause, s.time(tense) if s.chance(0.3) else None)


def genitive(s: Sampler) -> Sentence:
    """Return the king's dog slept; we saw the door of the old house."""
    tense = s.tense()
    if s.chance(0.6):
        owner = s.phrase(
            "person", determiner=s.pick((THE, DETERMINERS["my"])), plural=False, adjective=0.25
        )
        kinds = s.pick((("animal",), THINGS, ("person",)))
        phrase = of_person(s.phrase(*kinds, determiner=THE, adjective=0.3), owner)
    else:
        whole = s.phrase(determiner=THE, plural=False, choices=chosen(BUILDINGS))
        part = s.phrase(determiner=THE, adjective=0.3, choices=chosen(OF_PLACES))
        phrase = of_place(part, whole)
        kinds = THINGS
    if s.chance(0.4):
        return both(s.adorned(s.copula(phrase, tense)))
    groups = {("animal",): ("creature", "animal"), ("person",): ("person", "creature", "dative")}
    group = s.pick(groups.get(kinds, ("thing",)))
    clause = s.transitive(s.subject(), tense, group, direct=phrase)
    return both(clause, s.time(tense) if s.chance(0.3) else None)


def question(s: Sampler) -> Sentence:
    """Did the man find the key? Why ...?: verb first, or second after the question word."""
    subject, tense = (
        s.subject(quantifiers=False),
        s.pick((*("present", "past") * 3, "future", "can", "want")),
    )
    form = s.pick(("yes or no", "yes or no", "adverb", "object"))
    if form == "object":
        group = s.pick(("person", "creature", "dative", "dative", "goods", "thing"))
        clause = s.combine(Clause(subject, s.pick(verbs(group)), tense))
        assert clause.verb is not None
        if group in ("goods", "thing"):
            what = ("what", "was")
        else:
            what = ("who", "wem" if object_case(clause.verb) == DATIVE else "wen")
        what = linked(*what)
        if s.chance(0.4) or clause.english().count(" ") < 3:
            clause.time = s.time(tense)
        return f"{what[0]} {clause.english_question()} ?", f"{clause.german(front=what[1])} ?"
    draw = s.pick((s.transitive, s.transitive, s.giving, s.intransitive))
    clause = draw(subject, tense, negated=s.chance(0.15))
    if form == "yes or no":
        if s.chance(0.4):
            clause.time = s.time(tense, clause.negated)
        return f"{clause.english_question()} ?", f"{clause.german('first')} ?"
    adverb = linked(*s.pick((("why", "warum"), ("when", "wann"), ("where", "wo"))))
    return f"{adverb[0]} {clause.english_question()} ?", f"{clause.german(front=adverb[1])} ?"


def motion(s: Sampler) -> Sentence:
    """Return the child ran into the house, out of the house: preposition and case show the direction."""
    negated = s.chance(0.12)
    subject, tense = (
        s.subject(quantifiers=not negated),
        s.pick((s.tense(), s.tense(), "want", "must")),
    )
    english, german, case = s.pick(DIRECTIONS)
    english, german = linked(english, german)
    place = s.phrase(
        "place",
        plural=False,
        determiner=s.pick((THE, THE, THE, DETERMINERS["a"], DETERMINERS["this"])),
    )
    clause = s.combine(Clause(subject, s.pick(verbs("motion")), tense, negated=negated))
    clause.place = (f"{english} {place.english}", prepositional(german, place, case))
    if s.chance(0.3):
        return both(clause, s.time(tense, negated))
    return both(s.adorned(clause))


def position(s: Sampler) -> Sentence:
    """Return the lamp stands on the table; she laid it on the table: dative place, accusative goal."""
    english, german = s.pair(SURFACES)
    furniture = s.phrase(determiner=THE, plural=False, adjective=0.25, choices=chosen(FURNITURE))
    article = s.pick((THE, THE, DETERMINERS["a"]))
    plural = article is THE and s.chance(0.25)
    thing = s.phrase(determiner=article, plural=plural, choices=chosen(MOVABLE))
    if s.chance(0.5):
        tense = s.pick(("present", "past"))
        clause = Clause(thing, verbs("standing")[0], tense)
        case = DATIVE
    else:
        tense = s.tense()
        clause = Clause(s.subject(), s.pick(verbs("placing")), tense, direct=thing)
        case = ACCUSATIVE
    s.combine(clause)
    clause.place = (f"{english} {furniture.english}", prepositional(german, furniture, case))
    if s.chance(0.3):
        clause.time = s.time(tense)
    return both(clause)


def belonging(s: Sampler) -> Sentence:
    """Return the bicycle belongs to my brother: a thing as subject, a person in the dative."""
    thing = s.phrase(
        *s.pick((THINGS, ("animal",))), determiner=s.pick((THE, DETERMINERS["this"])), plural=False
    )
    owner = s.subject(quantifiers=False)
    clause = Clause(thing, verbs("belonging")[0], s.pick(("present", "past")), direct=owner)
    clause.negated = s.chance(0.2)
    return both(s.combine(clause))


def occasion(s: Sampler) -> Sentence:
    """Because of the storm the train waited: wegen, während, trotz with the genitive."""
    negated = s.chance(0.12)
    subject, tense = (
        s.subject(quantifiers=not negated),
        s.pick(("past", "past", "present", "future")),
    )
    draw = s.pick((s.transitive, s.intransitive))
    clause = draw(subject, tense, negated=negated)
    if s.chance(0.5):
        return both(clause, s.occasion())
    clause.time = s.occasion()
    return both(clause)
