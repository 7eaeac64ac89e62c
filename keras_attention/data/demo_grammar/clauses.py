"""The synchronous grammar of the synthetic `demo` corpus, clauses: English and German side by side.

A `Clause` is spelled out in English order and in the three German ones: finite verb second (main
clauses), first (questions), last (subordinate clauses). Participles, infinitives and separable
prefixes close the German clause; the English past is the German perfect, except for "be" and the
modal verbs.
"""

from __future__ import annotations

import dataclasses

from keras_attention.data.demo_grammar.lexicon import Adjective, Verb, add_s
from keras_attention.data.demo_grammar.phrases import ACCUSATIVE, DATIVE, NOMINATIVE, Phrase

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


@dataclasses.dataclass
class Clause:
    """Who does what to whom, when and where. Adverbials are (English, German) pairs.

    Attributes:
        tense: "present", "past", "future" or a key of `MODALS`.
        verb: None for "be", which has a `predicate`.
        direct: the object; dative after the verbs that want it, else accusative.
        recipient: person to whom something is given, German dative.
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

    def english(self, subject: str | None = None) -> str:
        """English declarative; `subject` replaces the subject ("who" in a relative clause)."""
        affirmative, auxiliary, rest = _english_verb(self)
        if self.negated:
            verb = _join(auxiliary, "not", rest).replace("can not", "cannot")
        elif self.frequency and self.verb:
            verb = f"{self.frequency[0]} {affirmative}"
        else:
            verb = affirmative
        return _join(
            self.subject.english if subject is None else subject, verb, *self._english_rest()
        )

    def english_question(self) -> str:
        """English yes/no question, without its mark."""
        _, auxiliary, rest = _english_verb(self)
        negation = "not" if self.negated else ""
        return _join(auxiliary, self.subject.english, negation, rest, *self._english_rest())

    def _english_rest(self) -> list[str]:
        direct = self.direct.english_object if self.direct else ""
        particle = self.verb.particle if self.verb else ""
        if self.verb and self.verb.movable and self.direct and self.direct.is_pronoun:
            words = [direct, particle]
        else:
            words = [particle, direct]
        if self.recipient:
            words.append(f"to {self.recipient.english_object}")
        if self.predicate:
            words.append(self.predicate.english)
        return words + [
            adverbial[0] for adverbial in (self.manner, self.place, self.time) if adverbial
        ]

    def german(self, order: str = "second", front: str = "", subject: str | None = None) -> str:
        """German clause.

        Args:
            order: place of the finite verb: "second", "first", "last", or "none": left out,
                because a clause before shares it ("hat ihn gefunden und verkauft").
            front: what stands before the finite verb instead of the subject ("second"), or before
                everything ("last": a relative pronoun that is no subject).
            subject: replaces the subject (a relative pronoun); "" leaves it out.
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
        """What stands between the finite verb and the end of the clause, in its order."""
        negation = "nicht" if self.negated else ""
        early = late = ""
        if self.direct:
            forms = self.direct.german
            if self.negated and self.direct.negative:
                forms, negation = self.direct.negative, ""
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
            self.predicate.german if self.predicate else "",
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
    if clause.verb is None:
        past = "was" if number < 2 else "were"
        be = past if clause.tense == "past" else ("am", "is", "are")[number]
        adverb = f" {clause.frequency[0]}" if clause.frequency else ""
        return ("will be", "will", "be") if clause.tense == "future" else (be + adverb, be, "")
    base = clause.verb.english
    if clause.tense == "past":
        return clause.verb.past, "did", base
    do = "does" if number == 1 else "do"
    if clause.tense == "present":
        return add_s(base) if number == 1 else base, do, base
    if clause.tense == "future":
        return f"will {base}", "will", base
    auxiliary, (third, other, infinitive), _, _ = MODALS[clause.tense]
    affirmative = f"{third if number == 1 else other} {base}"
    return affirmative, auxiliary or do, _join(infinitive, base)


def _german_verb(clause: Clause) -> tuple[str, str, str]:
    """Finite verb, separable prefix that is cut off or joined to it, participle or infinitive."""
    number = _number(clause.subject)
    verb = clause.verb
    if verb is None:
        forms = {"present": SEIN, "past": WAR, "future": WERDEN}[clause.tense]
        return forms[number], "", "sein" if clause.tense == "future" else ""
    if clause.tense == "present":
        return _present(verb, number), verb.prefix, ""
    if clause.tense == "past":
        return (SEIN if verb.auxiliary == "sein" else HABEN)[number], "", verb.participle
    infinitive = verb.prefix + verb.infinitive
    if clause.tense == "future":
        return WERDEN[number], "", infinitive
    *_, singular, plural = MODALS[clause.tense]
    if clause.tense == "must" and clause.negated:  # "must not" forbids
        singular, plural = "darf", "dürfen"
    return plural if number == 2 else singular, "", infinitive


def _present(verb: Verb, number: int) -> str:
    """ich lächle, er lächelt, wir lächeln."""
    if number == 2:
        return verb.infinitive
    if number == 1 or verb.infinitive == "wissen":
        return verb.third
    if verb.infinitive.endswith("eln"):
        return verb.infinitive[:-3] + "le"
    return verb.infinitive.removesuffix("n").removesuffix("e") + "e"
