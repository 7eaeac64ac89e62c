"""Random phrases and clauses that make sense, for the synthetic `demo` corpus."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from tools.demo_grammar.clauses import Clause
from tools.demo_grammar.lexicon import Noun, Verb, adjectives, nouns, verbs
from tools.demo_grammar.links import linked, unmarked
from tools.demo_grammar.phrases import (
    ACCUSATIVE,
    DATIVE,
    DETERMINERS,
    GENITIVE,
    PERSONAL,
    SPEAKER,
    SPEAKERS,
    Determiner,
    Phrase,
    its,
    named,
    noun_phrase,
    of_name,
    prepositional,
    pronoun,
    renewed,
)
from tools.demo_grammar.words import (
    FREQUENCIES,
    MANNERS,
    NAMES,
    OBJECT_KINDS,
    TIMES,
)

THE = DETERMINERS["the"]
THEY = Phrase("they", "them", PERSONAL["p"], "m", plural=True, is_pronoun=True)
# English determiners by the number of the noun; repeated ones are more frequent.
SINGULAR = ("the",) * 5 + ("a",) * 3 + ("this",)
PLURAL = ("the",) * 4 + ("", "these")
MASS = ("the",) * 3 + ("",) * 3 + ("this",)
QUANTIFIERS = {False: ("every",), True: ("two", "three", "four", "many", "some", "all")}
TRANSITIVE = (
    *("goods",) * 4, *("thing",) * 4, "device", "opening", "text", "clothes", "edible", "drink",
    *("person",) * 3, *("creature",) * 2, "animal",
)  # fmt: skip
MANNER_GROUPS = (
    "opening",
    "text",
    "clothes",
    "edible",
    "drink",
    "animal",
    "person action",
    "motion",
)
MODALITIES = ("can", "must", "should", "may", "could", "want", "wanted", "had")
PAST_MODALITIES = ("could", "wanted", "had")
POSITIONS = {"in": "in", "behind": "hinter", "in front of": "vor", "next to": "neben"}


class Combination(NamedTuple):
    """Two lexemes that occur together.

    Attributes:
        relation: "object" or "subject" of a verb, "attribute" for an adjective (also as predicate).
        head: English verb or adjective.
        noun: English noun, in the singular.
    """

    relation: str
    head: str
    noun: str


class Sampler:
    """Draws phrases and clauses and notes which lexemes it combined.

    Attributes:
        combinations: Set of `Combination`s of everything drawn since it was last cleared.
    """

    def __init__(self, seed: int) -> None:
        # Only random() is promised to give the same numbers on every Python version.
        self._random = random.Random(seed).random
        self.combinations: set[Combination] = set()

    def chance(self, probability: float) -> bool:
        """Return true with the given probability."""
        return self._random() < probability

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options, all equally likely."""
        return options[int(self._random() * len(options))]

    def pair(self, table: dict[str, str]) -> tuple[str, str]:
        """One (English, German) item of a table."""
        return linked(*self.pick(tuple(table.items())))

    def phrase(
        self,
        *kinds: str,
        determiner: Determiner | None = None,
        owner: Phrase | None = None,
        plural: bool | None = None,
        adjective: float = 0.4,
        quantifiers: bool = True,
        choices: tuple[Noun, ...] = (),
    ) -> Phrase:
        """Return a noun phrase with a noun of one of the kinds, or one of the choices.

        Args:
            determiner: Fixes the determiner.
            owner: Who a possessive may refer to ("her" after a woman, "its" after a dog).
            plural: Fixes the number.
            adjective: Probability of an adjective.
            quantifiers: Allow every, many, two ... (under negation their scope would be unclear).
        """
        noun = self.pick(choices or nouns(*kinds))
        countable = "plural" in noun.german
        if plural is None:
            plural = self.chance(0.25)
        plural = plural and countable
        if determiner is None:
            determiner = self._determiner(plural, countable, owner, quantifiers)
        attribute = self.pick(adjectives(noun.kind)) if self.chance(adjective) else None
        if attribute:
            self.combinations.add(Combination("attribute", attribute.english, noun.english))
        return noun_phrase(noun, determiner, attribute, plural)

    def _determiner(
        self, plural: bool, countable: bool, owner: Phrase | None, quantifiers: bool
    ) -> Determiner:
        if self.chance(0.2):
            if owner and self.chance(0.6):
                return possessive(owner)
            if self.chance(0.4):
                return of_name(self.pick(NAMES["f"] + NAMES["m"]))
            return DETERMINERS[self.pick(("my", "our"))]
        if quantifiers and countable and self.chance(0.15):
            return DETERMINERS[self.pick(QUANTIFIERS[plural])]
        return DETERMINERS[self.pick(PLURAL if plural else SINGULAR if countable else MASS)]

    def subject(self, quantifiers: bool = True, pronouns: bool = True) -> Phrase:
        """Return a person: noun phrase, name or pronoun."""
        draw = self._random()
        if draw < 0.12:
            gender = self.pick("mf")
            return named(self.pick(NAMES[gender]), gender)
        if draw < 0.3 and pronouns:
            he_or_she = pronoun(named("", self.pick("mf")))
            return renewed(self.pick((SPEAKER, SPEAKERS, THEY, he_or_she)))
        return self.phrase("person", quantifiers=quantifiers, adjective=0.3)

    def tense(self) -> str:
        """Present, past or future."""
        return self.pick(("present", "present", "present", "past", "past", "past", "future"))

    def time(self, tense: str, negated: bool = False) -> tuple[str, str]:
        """Return a time that fits the tense; under negation no "every day": its scope would be unclear."""
        if tense in PAST_MODALITIES:
            tense = "past"
        elif tense in MODALITIES:
            tense = "future"
        times = {e: g for e, g in TIMES[tense].items() if not (negated and e.startswith("every"))}
        return self.pair(times)

    def position(self) -> tuple[str, str]:
        """Where something happens: "in the garden", "im Garten"."""
        english, german = self.pair(POSITIONS)
        place = self.phrase("place", determiner=THE, plural=False, adjective=0.2)
        return f"{english} {place.english}", prepositional(german, place, DATIVE)

    def company(self, group: str) -> tuple[str, str]:
        """With, without or, with the verbs of buying and the like, for whom."""
        options = (("with", "mit", DATIVE), ("without", "ohne", ACCUSATIVE))
        english, german, case = self.pick(options)
        if group == "goods":
            english, german, case = "for", "für", ACCUSATIVE
        english, german = linked(english, german)
        other = self.phrase("person", adjective=0.2, plural=False, quantifiers=False)
        return f"{english} {other.english_object}", prepositional(german, other, case)

    def occasion(self) -> tuple[str, str]:
        """During, because of, despite (genitive), after or before (dative) an event."""
        english, german, case = self.pick(
            (
                ("during", "während", GENITIVE),
                ("because of", "wegen", GENITIVE),
                ("despite", "trotz", GENITIVE),
                ("after", "nach", DATIVE),
                ("before", "vor", DATIVE),
            )
        )
        english, german = linked(english, german)
        determiner = self.pick((THE, THE, DETERMINERS["this"]))
        event = self.phrase("event", determiner=determiner, plural=False)
        return f"{english} {event.english}", prepositional(german, event, case)

    def combine(self, clause: Clause) -> Clause:
        """Note the combinations of verb or predicate with subject and object."""
        subject, direct = clause.subject.noun, clause.direct.noun if clause.direct else None
        if clause.predicate and subject:
            self.combinations.add(
                Combination("attribute", clause.predicate.english, subject.english)
            )
        if clause.verb and subject:
            self.combinations.add(Combination("subject", clause.verb.lemma, subject.english))
        if clause.verb and direct:
            self.combinations.add(Combination("object", clause.verb.lemma, direct.english))
        return clause

    def transitive(
        self,
        subject: Phrase,
        tense: str,
        group: str = "",
        verb: Verb | None = None,
        direct: Phrase | None = None,
        negated: bool = False,
    ) -> Clause:
        """Someone does something to someone or something."""
        group = verb.group if verb else group or self.pick(TRANSITIVE)
        verb = verb or self.pick(verbs(group))
        if direct is None:
            direct = self.phrase(
                *OBJECT_KINDS[group], owner=subject, quantifiers=not negated, adjective=0.45
            )
        return self.combine(Clause(subject, verb, tense, direct=direct, negated=negated))

    def giving(self, subject: Phrase, tense: str, negated: bool = False) -> Clause:
        """Someone gives something to someone."""
        clause = self.transitive(subject, tense, "giving", negated=negated)
        recipient = self.subject(quantifiers=False, pronouns=False)
        clause.recipient = recipient
        return clause

    def intransitive(self, subject: Phrase, tense: str, negated: bool = False) -> Clause:
        """Return a person or an animal does something."""
        person = subject.noun is None or subject.noun.kind == "person"
        group = self.pick(("action", "person action")) if person else "action"
        verb = self.pick(verbs(group))
        return self.combine(Clause(subject, verb, tense, negated=negated))

    def copula(self, subject: Phrase, tense: str, negated: bool = False) -> Clause:
        """Someone or something is old, tired, expensive ..."""
        options = adjectives(subject.noun.kind if subject.noun else "person")
        words = unmarked(subject.english).split()  # not "the old man is old"
        predicate = self.pick(tuple(option for option in options if option.english not in words))
        return self.combine(Clause(subject, None, tense, predicate=predicate, negated=negated))

    def adorned(self, clause: Clause) -> Clause:
        """Add adverbials: how and where, and when or how often."""
        group = clause.verb.group if clause.verb else ""
        if group in MANNER_GROUPS and self.chance(0.3):
            clause.manner = self.pair(MANNERS)
        if clause.verb and clause.place is None and self.chance(0.25):
            company = group in ("goods", "action", "person action") and self.chance(0.4)
            clause.place = self.company(group) if company else self.position()
        if self.chance(0.35):
            clause.time = self.time(clause.tense, clause.negated)
        elif clause.tense in ("present", "past") and not clause.negated and self.chance(0.15):
            clause.frequency = self.pair(FREQUENCIES)
        return clause


def possessive(owner: Phrase) -> Determiner:
    """Return the possessive that refers to the owner; "the" where English would have no clear one."""
    if owner.person == 1:
        return DETERMINERS["our" if owner.plural else "my"]
    if owner.plural:
        return DETERMINERS["their"]
    if owner.noun and owner.noun.kind != "person":
        return its(owner)
    return DETERMINERS[{"m": "his", "f": "her", "n": "the"}[owner.gender]]
