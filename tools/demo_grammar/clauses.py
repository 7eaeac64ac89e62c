"""The synchronous grammar of the synthetic `demo` corpus, clauses: English and German side by side.

A `Clause` is spelled out in English order and in the three German ones: finite verb second (main
clauses), first (questions), last (subordinate clauses). Participles, infinitives and separable
prefixes close the German clause; the English past is the German perfect, except for "be" and the
modal verbs.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from tools.demo_grammar.lexicon import Adjective, Verb, add_s
from tools.demo_grammar.links import marked, marked_first, marks_of, new_mark
from tools.demo_grammar.phrases import ACCUSATIVE, DATIVE, NOMINATIVE, Phrase

# Modality -> English auxiliary ("" where "do" serves), English forms (third person, other persons,
# infinitive), German singular and plural.
MODALS = {
    "can": ("can", ("can", "can", ""), "kann", "können"),
    "must": ("must", ("must", "must", ""), "muss", "müssen"),
    "should": ("should", ("should", "should", ""), "sollte", "sollten"),
    "may": ("may", ("may", "may", ""), "darf", "dürfen"),
    "could": ("could", ("could", "could", ""), "konnte", "konnten"),
    "want": ("", ("wants to", "want to", "want to"), "will", "wollen"),
    "wanted": ("did", ("wanted to", "wanted to", "want to"), "wollte", "wollten"),
    "had": ("did", ("had to", "had to", "have to"), "musste", "mussten"),
}
# First person singular, third person singular, plural.
HABEN = ("habe", "hat", "haben")
SEIN = ("bin", "ist", "sind")
WAR = ("war", "war", "waren")
WERDEN = ("werde", "wird", "werden")


class Marks(NamedTuple):
    """Marks of the words of a clause that belong to no phrase."""

    verb: str
    auxiliary: str
    particle: str
    negation: str
    predicate: str

    @classmethod
    def new(cls) -> Marks:
        return cls(*(new_mark() for _ in cls._fields))


@dataclasses.dataclass
class Clause:
    """Who does what to whom, when and where. Adverbials are (English, German) pairs.

    Attributes:
        tense: "present", "past", "future" or a key of `MODALS`.
        verb: None for "be", which has a `predicate`.
        direct: The object; dative after the verbs that want it, else accusative.
        recipient: Person to whom something is given, German dative.
        marks: Which words stand for the same in both languages.
    """

    subject: Phrase
    verb: Verb | None = None
    tense: str = "present"
    direct: Phrase | None = None
    recipient: Phrase | None = None
    predicate: Adjective | None = None
    time: tuple[str, str] | None = None
    frequency: tuple[str, str] | None = None
    manner: tuple[str, str] | None = None
    place: tuple[str, str] | None = None
    negated: bool = False
    marks: Marks = dataclasses.field(default_factory=Marks.new)

    def english(self, subject: str | None = None) -> str:
        """English declarative; `subject` replaces the subject ("who" in a relative clause)."""
        affirmative, auxiliary, rest = _english_verb(self)
        if self.negated:
            verb = self._negated_english(auxiliary, rest)
        elif self.frequency and self.verb:
            verb = f"{self.frequency[0]} {affirmative}"
        else:
            verb = affirmative
        return _join(
            self.subject.english if subject is None else subject, verb, *self._english_rest()
        )

    def _negated_english(self, auxiliary: str, rest: str) -> str:
        negation = marked("not", self.marks.negation)
        if self.tense == "can":  # one word
            return _join("cannot" + marks_of(auxiliary) + marks_of(negation), rest)
        return _join(auxiliary, negation, rest)

    def english_question(self) -> str:
        """English yes/no question, without its mark."""
        _, auxiliary, rest = _english_verb(self)
        negation = marked("not", self.marks.negation) if self.negated else ""
        return _join(auxiliary, self.subject.english, negation, rest, *self._english_rest())

    def _english_rest(self) -> list[str]:
        direct = self.direct.english_object if self.direct else ""
        particle = marked(self.verb.particle, self.marks.particle) if self.verb else ""
        if self.verb and self.verb.movable and self.direct and self.direct.is_pronoun:
            words = [direct, particle]
        else:
            words = [particle, direct]
        if self.recipient:
            words.append(f"to {self.recipient.english_object}")
        if self.predicate:
            words.append(marked(self.predicate.english, self.marks.predicate))
        return words + [
            adverbial[0] for adverbial in (self.manner, self.place, self.time) if adverbial
        ]

    def german(self, order: str = "second", front: str = "", subject: str | None = None) -> str:
        """German clause.

        Args:
            order: Place of the finite verb: "second", "first", "last", or "none": left out,
                because a clause before shares it ("hat ihn gefunden und verkauft").
            front: What stands before the finite verb instead of the subject ("second"), or before
                everything ("last": a relative pronoun that is no subject).
            subject: Replaces the subject (a relative pronoun); "" leaves it out.
        """
        finite, prefix, nonfinite = _german_verb(self)
        subject = self.subject.german[NOMINATIVE] if subject is None else subject
        middle = self._german_middle()
        after = self.direct.afterthought if self.direct else ""
        if order == "last":
            return _join(front, subject, *middle, nonfinite, prefix + finite, after)
        if order == "none":
            return _join(*middle, nonfinite, prefix, after)
        head = [finite, subject] if order == "first" else [subject, finite]
        if front:
            head = [front, finite, subject]
        return _join(*head, *middle, nonfinite, prefix, after)

    def _german_middle(self) -> list[str]:
        """Return what stands between the finite verb and the end of the clause, in its order."""
        negation = marked("nicht", self.marks.negation) if self.negated else ""
        early = late = ""
        if self.direct:
            forms = self.direct.german
            if self.negated and self.direct.negative:
                forms = tuple(
                    marked_first(form, self.marks.negation) for form in self.direct.negative
                )
                negation = ""
            case = object_case(self.verb)
            early, late = (forms[case], "") if self.direct.is_pronoun else ("", forms[case])
        when = self.time or self.frequency
        return [
            early,
            when[1] if when else "",
            self.recipient.german[DATIVE] if self.recipient else "",
            late,
            negation,
            self.manner[1] if self.manner else "",
            self.place[1] if self.place else "",
            marked(self.predicate.german, self.marks.predicate) if self.predicate else "",
        ]


def object_case(verb: Verb | None) -> int:
    """Case of the German object."""
    return DATIVE if verb and verb.group in ("dative", "belonging") else ACCUSATIVE


def _join(*words: str) -> str:
    return " ".join(filter(None, words))


def _number(subject: Phrase) -> int:
    """Index into (first person singular, third person singular, plural)."""
    if subject.plural:
        return 2
    return 0 if subject.person == 1 else 1


def _english_verb(clause: Clause) -> tuple[str, str, str]:
    """Affirmative form, auxiliary of negations and questions, what follows that auxiliary."""
    number = _number(clause.subject)
    marks = clause.marks
    will = marked("will", marks.auxiliary)
    if clause.verb is None:
        past = "was" if number < 2 else "were"
        be = past if clause.tense == "past" else ("am", "is", "are")[number]
        be = marked("be" if clause.tense == "future" else be, marks.verb)
        adverb = f" {clause.frequency[0]}" if clause.frequency else ""
        return (f"{will} {be}", will, be) if clause.tense == "future" else (be + adverb, be, "")
    base = marked(clause.verb.english, marks.verb)
    if clause.tense == "past":
        # The German perfect has an auxiliary where this has none.
        past = clause.verb.past + marks.verb + marks.auxiliary
        return past, marked("did", marks.auxiliary), base
    do = "does" if number == 1 else "do"
    if clause.tense == "present":
        present = add_s(clause.verb.english) if number == 1 else clause.verb.english
        return marked(present, marks.verb), do, base
    if clause.tense == "future":
        return f"{will} {base}", will, base
    auxiliary, (third, other, infinitive), _, _ = MODALS[clause.tense]
    modal = marked_first(third if number == 1 else other, marks.auxiliary)
    if not infinitive:  # "can" is the auxiliary itself
        return f"{modal} {base}", modal, base
    rest = f"{marked_first(infinitive, marks.auxiliary)} {base}"
    return f"{modal} {base}", auxiliary or do, rest


def _german_verb(clause: Clause) -> tuple[str, str, str]:
    """Finite verb, separable prefix that is cut off or joined to it, participle or infinitive."""
    number = _number(clause.subject)
    verb, marks = clause.verb, clause.marks
    if verb is None:
        forms = {"present": SEIN, "past": WAR, "future": WERDEN}[clause.tense]
        if clause.tense == "future":
            return marked(forms[number], marks.auxiliary), "", marked("sein", marks.verb)
        return marked(forms[number], marks.verb), "", ""
    prefix = marked(verb.prefix, marks.particle)
    if clause.tense == "present":
        return marked(_present(verb, number), marks.verb), prefix, ""
    if clause.tense == "past":
        finite = (SEIN if verb.auxiliary == "sein" else HABEN)[number]
        return marked(finite, marks.auxiliary), "", marked(verb.participle, marks.verb)
    infinitive = prefix + marked(verb.infinitive, marks.verb)
    if clause.tense == "future":
        return marked(WERDEN[number], marks.auxiliary), "", infinitive
    *_, singular, plural = MODALS[clause.tense]
    if clause.tense == "must" and clause.negated:  # "must not" forbids
        singular, plural = "darf", "dürfen"
    return marked(plural if number == 2 else singular, marks.auxiliary), "", infinitive


def _present(verb: Verb, number: int) -> str:
    """ich lächle, er lächelt, wir lächeln."""
    if number == 2:
        return verb.infinitive
    if number == 1 or verb.infinitive == "wissen":
        return verb.third
    if verb.infinitive.endswith("eln"):
        return verb.infinitive[:-3] + "le"
    return verb.infinitive.removesuffix("n").removesuffix("e") + "e"
