"""Sentences of two clauses of the synthetic `demo` corpus, drawn from a `Sampler`.

As in `main_clauses`: English and German without capital and closing mark, or None.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.demo_grammar.clauses import Clause, object_case
from tools.demo_grammar.lexicon import verbs
from tools.demo_grammar.links import linked
from tools.demo_grammar.main_clauses import SIGHT_VERBS, Sentence, both
from tools.demo_grammar.phrases import (
    DATIVE,
    NOMINATIVE,
    RELATIVE,
    Phrase,
    pronoun,
    whose,
)
from tools.demo_grammar.sampler import THE, Sampler
from tools.demo_grammar.words import THINGS

PRESENT_CONJUNCTIONS = {
    "because": "weil",
    "although": "obwohl",
    "if": "wenn",
    "when": "wenn",
    "while": "während",
}
PAST_CONJUNCTIONS = {
    "because": "weil",
    "although": "obwohl",
    "when": "als",
    "while": "während",
    "before": "bevor",
}


def companion(s: Sampler, first: Phrase) -> Phrase:
    """Subject of a second clause: a pronoun for the first subject, or somebody else."""
    person = first.noun is None or first.noun.kind == "person"
    if s.chance(0.6):
        if first.is_pronoun:
            return first
        if first.plural or not person or first.gender != "n":
            return pronoun(first)
    return s.subject()


def two_clauses(s: Sampler) -> tuple[Clause, str, str, Clause]:
    """Return main clause, conjunction in both languages, subordinate clause."""
    tense = s.pick(("present", "past"))
    negated = s.chance(0.12)
    if s.chance(0.3):  # "it" can only be the animal: no other noun beside it
        subject = s.phrase("animal", quantifiers=not negated)
        main = s.intransitive(subject, tense, negated)
    else:
        subject = s.subject(quantifiers=not negated)
        draw = s.pick((s.transitive, s.transitive, s.giving, s.intransitive))
        main = draw(subject, tense, negated=negated)
    table = PRESENT_CONJUNCTIONS if tense == "present" else PAST_CONJUNCTIONS
    english, german = s.pair(table)
    second = companion(s, subject)
    animal = second.noun is not None and second.noun.kind == "animal"
    draw = s.pick((s.copula, s.intransitive, s.intransitive if animal else s.transitive))
    return main, english, german, draw(second, tense)


def subordinate(s: Sampler) -> Sentence | None:
    """Return the dog slept because it was tired: the finite verb closes the German subordinate clause."""
    main, english, german, clause = two_clauses(s)
    if clause.verb is main.verb:  # not "it sleeps while it sleeps"
        return None
    if s.chance(0.15) and clause.verb:
        clause.tense = "could" if main.tense == "past" else s.pick(("can", "must", "want"))
    return (
        f"{main.english()} {english} {clause.english()}",
        f"{main.german()} , {german} {clause.german('last')}",
    )


def fronted_subordinate(s: Sampler) -> Sentence | None:
    """When the dog was tired, it slept: the subordinate clause takes the first place."""
    main, english, german, clause = two_clauses(s)
    if clause.verb is main.verb:
        return None
    if clause.subject.is_pronoun and clause.subject.noun:  # the pronoun follows its noun
        main.subject, clause.subject = clause.subject, main.subject
    return (
        f"{english} {clause.english()} , {main.english()}",
        main.german(front=f"{german} {clause.german('last')} ,"),
    )


def it_because(s: Sampler) -> Sentence:
    """Return the man sold the lamp because it was old: sie, for die Lampe."""
    tense, negated = s.pick(("present", "past")), s.chance(0.2)
    subject = s.subject(quantifiers=not negated)
    group = s.pick(("goods", "goods", "thing", "text", "clothes", "animal", "edible", "opening"))
    main = s.transitive(subject, tense, group, negated=negated)
    assert main.direct is not None
    main.negated = negated and not main.direct.negative  # no pronoun for "kein ..."
    clause = s.copula(pronoun(main.direct), tense)
    because = (("because", "weil"), ("because", "weil"), ("although", "obwohl"))
    english, german = linked(*s.pick(because))
    return (
        f"{main.english()} {english} {clause.english()}",
        f"{main.german()} , {german} {clause.german('last')}",
    )


def but_it(s: Sampler) -> Sentence | None:
    """Return the lamp was cheap, but the man did not buy it."""
    tense = s.pick(("present", "past"))
    kinds = s.pick((THINGS, ("food", "dish", "drink"), ("animal",), ("person",)))
    first = s.phrase(*kinds, quantifiers=False, adjective=0)
    if first.noun and first.noun.kind == "person" and first.gender == "n" and not first.plural:
        return None
    clause = s.copula(first, tense)
    groups = {
        THINGS: ("goods", "thing"),
        ("animal",): ("creature", "animal"),
        ("person",): ("person",),
    }
    group = s.pick(groups.get(kinds, ("goods",)))
    other = s.subject(quantifiers=False)
    second = s.transitive(other, tense, group, direct=pronoun(first), negated=s.chance(0.6))
    but, aber = linked("but", "aber")
    return (
        f"{clause.english()} , {but} {second.english()}",
        f"{clause.german()} , {aber} {second.german()}",
    )


def and_it(s: Sampler) -> Sentence | None:
    """Return the man found the key and hid it; the woman met the boy and thanked him."""
    subject, tense = s.subject(), s.pick(("present", "past"))
    groups = ("person", "creature") if s.chance(0.4) else ("goods", "thing", "clothes", "text")
    first = s.transitive(subject, tense, s.pick(groups))
    assert first.verb is not None and first.direct is not None and first.direct.noun is not None
    noun = first.direct.noun
    if noun.kind == "person" and noun.gender == "n" and not first.direct.plural:
        return None
    if noun.kind == "person":
        then = s.pick(("person", "dative", "dative"))
    else:
        then = "creature" if noun.kind == "animal" else s.pick(("goods", "thing"))
    if noun.kind in ("food", "dish", "drink"):
        then = "goods"
    verb = s.pick([verb for verb in verbs(then) if verb is not first.verb])
    second = s.transitive(subject, tense, verb=verb, direct=pronoun(first.direct))
    shared = tense == "past" and first.verb.auxiliary == verb.auxiliary
    german = second.german("none" if shared else "second", subject="")
    both_and, und = linked("and", "und")
    return (
        f"{first.english()} {both_and} {second.english(subject='')}",
        f"{first.german()} {und} {german}",
    )


def that_clause(s: Sampler) -> Sentence:
    """Return the king believes that the thief stole the crown; she asks whether ...: dass, ob."""
    subject, tense = s.subject(quantifiers=False), s.pick(("present", "past"))
    whether = s.chance(0.35)
    verb = s.pick(verbs("whether" if whether else "that"))
    negated = verb.lemma == "know" if whether else s.chance(0.2)
    main = Clause(subject, verb, tense, negated=negated)
    draw = s.pick((s.transitive, s.transitive, s.giving, s.intransitive, s.copula))
    inner = draw(companion(s, subject), "past" if tense == "past" else s.tense())
    if s.chance(0.25):
        inner.time = s.time(inner.tense)
    that, dass = linked(*(("whether", "ob") if whether else ("that", "dass")))
    return (
        f"{main.english()} {that} {inner.english()}",
        f"{main.german()} , {dass} {inner.german('last')}",
    )


def attached(s: Sampler, head: Phrase, relative: Sentence) -> Sentence:
    """Return a main clause about a head with a relative clause: its subject or its object."""
    assert head.noun is not None
    kind, tense = head.noun.kind, s.pick(("present", "past"))
    english = f"{head.english} {relative[0]}"
    if s.chance(0.5):
        german = tuple(f"{form} , {relative[1]} ," for form in head.german)
        subject = head._replace(english=english, german=german)
        draws = {
            "person": (s.copula, s.intransitive, s.transitive),
            "animal": (s.copula, s.intransitive),
        }
        return both(s.pick(draws.get(kind, (s.copula,)))(subject, tense))
    direct = head._replace(english_object=english, afterthought=f", {relative[1]}")
    groups = {"person": ("person", "creature", "dative"), "animal": ("creature", "animal")}
    verb = s.pick(verbs(s.pick(groups.get(kind, ("goods", "thing")))))
    if kind == "place":
        verb = s.pick([verb for verb in verbs("thing") if verb.lemma in SIGHT_VERBS])
    clause = s.transitive(s.subject(), tense, verb=verb, direct=direct)
    return both(clause, s.time(tense) if s.chance(0.3) else None)


def head_of_relative(s: Sampler, *kinds: str, plural: bool | None = None) -> Phrase:
    """Return what a relative clause describes."""
    return s.phrase(*kinds, determiner=THE, plural=plural, adjective=0.25)


def relative_subject(s: Sampler) -> Sentence:
    """Return the man who found the key: the relative pronoun is the subject."""
    kinds = s.pick((("person",), ("person",), ("animal",), ("place",), THINGS))
    head, tense = head_of_relative(s, *kinds), s.pick(("present", "past"))
    draws: list[Callable[..., Clause]] = [s.copula]
    if kinds in (("person",), ("animal",)):
        draws.append(s.intransitive)
    if kinds == ("person",):
        draws += [s.transitive, s.transitive]
    clause = s.pick(draws)(head, tense)
    who, relative = linked(
        "who" if kinds == ("person",) else "that", RELATIVE[head.agreement][NOMINATIVE]
    )
    german = clause.german("last", subject=relative)
    return attached(s, head, (clause.english(subject=who), german))


def relative_object(s: Sampler) -> Sentence:
    """Return the lamp that the man bought, the boy that the woman helps: the verb sets the case."""
    kinds = s.pick((("person",), ("animal",), THINGS, THINGS))
    head, tense = head_of_relative(s, *kinds), s.pick(("present", "past"))
    groups = {
        ("person",): ("person", "creature", "dative", "dative"),
        ("animal",): ("creature", "animal"),
    }
    group = s.pick(groups.get(kinds, ("goods", "thing")))
    other = s.subject(quantifiers=False)
    clause = s.transitive(other, tense, group, direct=head, negated=s.chance(0.12))
    that, relative = linked("that", RELATIVE[head.agreement][object_case(clause.verb)])
    clause.direct = None
    return attached(s, head, (f"{that} {clause.english()}", clause.german("last", front=relative)))


def relative_whose(s: Sampler) -> Sentence:
    """Return the woman whose dog slept: dessen or deren by the gender of the owner."""
    head = head_of_relative(s, "person")
    thing = s.phrase(
        *s.pick((("animal",), ("person",), THINGS)), determiner=whose(head), plural=False
    )
    assert thing.noun is not None
    living = thing.noun.kind in ("animal", "person")
    draw = s.pick((s.copula, s.intransitive)) if living else s.copula
    clause = draw(thing, s.pick(("present", "past")))
    return attached(s, head, (clause.english(), clause.german("last")))


def relative_place(s: Sampler) -> Sentence:
    """Return the house in which the girl lived: in dem, in der."""
    head = head_of_relative(s, "place")
    verb = s.pick(verbs(s.pick(("dwelling", "person action"))))
    clause = s.combine(Clause(s.subject(), verb, s.pick(("present", "past"))))
    which, relative = linked("in which", f"in {RELATIVE[head.agreement][DATIVE]}")
    return attached(s, head, (f"{which} {clause.english()}", clause.german("last", front=relative)))
