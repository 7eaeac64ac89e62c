"""The demo corpus: German against a grammar book's tables, the split against the text itself.

The package ships what the grammar writes, so the last test notices any change of it; these say that it is
right.
"""

import collections
import re

import pytest

from keras_attention import load_corpus
from keras_attention_viewer.tokens import split_words
from tools.demo_grammar import lexicon
from tools.demo_grammar.clauses import Clause
from tools.demo_grammar.corpus import ENGLISH_WORDS, demo_examples, split_of
from tools.demo_grammar.phrases import DETERMINERS, SPEAKERS, noun_phrase, pronoun
from tools.demo_grammar.sentences import CONSTRUCTIONS
from tools.demo_grammar.words import ADJECTIVES, NOUNS, VERBS

pytestmark = pytest.mark.backends("tensorflow")

ALL_NOUNS = lexicon.nouns(*{kind for kind, _ in NOUNS})
ALL_VERBS = [verb for group in VERBS for verb in lexicon.verbs(group)]
ALL_ADJECTIVES = {a.english: a for kind in ADJECTIVES for a in lexicon.adjectives(kind)}


def noun(english):
    return next(noun for noun in ALL_NOUNS if noun.english == english)


def verb(lemma):
    return next(verb for verb in ALL_VERBS if verb.lemma == lemma)


def phrase(text):
    """A noun phrase from "the old man"; a plural is marked with a "+": "two old man+"."""
    *words, head = text.split()
    plural = head.endswith("+")
    adjective = ALL_ADJECTIVES[words.pop()] if words and words[-1] in ALL_ADJECTIVES else None
    determiner = DETERMINERS[words[0] if words else ""]
    return noun_phrase(noun(head.rstrip("+")), determiner, adjective, plural)


@pytest.fixture(scope="module")
def splits():
    return demo_examples()


@pytest.fixture(scope="module")
def everything(splits):
    return [example for examples in splits.values() for example in examples]


# Nominative, accusative, dative, genitive, as the tables of a grammar book have them.
DECLENSIONS = {
    "the old man": "der alte Mann, den alten Mann, dem alten Mann, des alten Mannes",
    "the old man+": "die alten Männer, die alten Männer, den alten Männern, der alten Männer",
    "two new book+": "zwei neue Bücher, zwei neue Bücher, zwei neuen Büchern, zwei neuer Bücher",
    "this clever boy": "dieser kluge Junge, diesen klugen Jungen, diesem klugen Jungen, "
    "dieses klugen Jungen",
}


@pytest.mark.parametrize("english", DECLENSIONS)
def test_declension(english):
    assert ", ".join(phrase(english).german) == DECLENSIONS[english]


def clause(subject, lemma, tense="present", direct=None, **rest):
    subject = phrase(subject) if isinstance(subject, str) else subject
    direct = phrase(direct) if isinstance(direct, str) else direct
    return Clause(subject, verb(lemma) if lemma else None, tense, direct=direct, **rest)


IT = pronoun(noun_phrase(lexicon.nouns("device")[2], DETERMINERS["the"]))  # the lamp
YESTERDAY = ("yesterday", "gestern")
BOY = phrase("the poor boy")
# Clause; English, German main clause, German subordinate clause: written by hand.
CLAUSES = [
    (clause("the man", "turn off", direct="the lamp"),
     "the man turns off the lamp", "der Mann schaltet die Lampe aus",
     "der Mann die Lampe ausschaltet"),
    (clause("the man", "turn off", "past", IT),
     "the man turned it off", "der Mann hat sie ausgeschaltet",
     "der Mann sie ausgeschaltet hat"),
    (clause("the man", "look at", "want", IT, negated=True),
     "the man does not want to look at it", "der Mann will sie nicht ansehen",
     "der Mann sie nicht ansehen will"),
    (clause(SPEAKERS, "go", "past", time=YESTERDAY, place=("to the park", "zum Park")),
     "we went to the park yesterday", "wir sind gestern zum Park gegangen",
     "wir gestern zum Park gegangen sind"),
    (clause("the queen", "give", "past", "a ring", recipient=BOY, negated=True),
     "the queen did not give a ring to the poor boy", "die Königin hat dem armen Jungen keinen Ring gegeben",
     "die Königin dem armen Jungen keinen Ring gegeben hat"),
    (clause("every witch", "fall asleep", "had", manner=("quickly", "schnell")),
     "every witch had to fall asleep quickly", "jede Hexe musste schnell einschlafen",
     "jede Hexe schnell einschlafen musste"),
]  # fmt: skip


@pytest.mark.parametrize("structure, english, main, subordinate", CLAUSES)
def test_clause(structure, english, main, subordinate):
    assert structure.english() == english
    assert structure.german() == main
    assert structure.german("last") == subordinate


def test_sizes_lengths_and_distinctness(splits, everything):
    assert {split: len(examples) for split, examples in splits.items()} == {
        "train": 10_000, "validation": 400, "test": 500,
    }  # fmt: skip
    assert len({example.source for example in everything}) == 10_900
    assert {len(example.source.split()) for example in everything} <= set(range(5, 21))
    assert ENGLISH_WORDS == range(5, 21)
    lemmas = {n.german["singular"][0] for n in ALL_NOUNS} | {
        a.german for a in ALL_ADJECTIVES.values()
    }
    lemmas |= {verb.prefix + verb.infinitive for verb in ALL_VERBS}
    assert 300 < len(lemmas) < 600


def test_english_has_one_german(everything):
    translations = {example.source: example.target for example in everything}
    assert [e for e in everything if translations[e.source] != e.target] == []


def test_spelling(everything):
    for example in everything:
        for text in example[:2]:
            assert re.fullmatch(r"[A-ZÄÖÜ](?:[A-Za-zÄÖÜäöüß']|, | )+[.?]", text), text
            assert "  " not in text
        assert example.source.endswith("?") == example.target.endswith("?")
    nouns = {form.lower() for n in ALL_NOUNS for forms in n.german.values() for form in forms}
    words = {word for example in everything for word in re.findall(r"\w+", example.target)}
    # A noun form is capitalised wherever it stands; these are also verbs and adjectives.
    assert nouns & words <= {"spiele", "spielen", "reise", "reisen", "junge", "jungen", "laden"}


def test_adjective_endings_after_articles(everything):
    """Weak after der, mixed after ein: rules of thumb, applied to the finished text."""
    rules = {
        "en": "dem des einem eines einen im zum zur einer diesem",
        "e": "das eine ins",
        "e en": "der den die keine meine diese dieser dieses",
        "er es": "ein mein unser",
    }
    stems = "|".join(sorted({a.stem for a in ALL_ADJECTIVES.values()}))
    for endings, articles in rules.items():
        pattern = rf"\b({articles.replace(' ', '|')}) ({stems})(e|en|em|er|es) (?=[A-ZÄÖÜ])"
        found = 0
        for example in everything:
            # A relative pronoun (after a comma) looks like an article but is none.
            text = re.sub(r", (?:in )?(?:der|die|das|den|dem|denen)\b", ",", example.target)
            for match in re.finditer(pattern, text):
                assert match[3] in endings.split(), example.target
                found += 1
        assert found > 200


def test_it_refers_to_the_object(everything):
    """den Tisch ..., weil er; die Lampe ..., weil sie; das Buch ..., weil es."""
    expected = {"den": "er", "einen": "er", "die": "sie", "eine": "sie", "das": "es"}
    article = r"\b(den|einen|die|eine|das) (?:[a-zäöüß]+ )?[A-ZÄÖÜ]\w+"
    found = collections.Counter()
    for example in everything:
        if example.construction == "it_because":
            match = re.search(
                article + r"[^,A-ZÄÖÜ]*, (?:weil|obwohl) (er|sie|es) \w+ (?:ist|war)\.$",
                example.target,
            )
            if match:
                assert match[2] == expected[match[1]], example.target
                found[match[2]] += 1
    assert min(found["er"], found["sie"], found["es"]) > 20


def test_phenomena_are_frequent(splits):
    counts = collections.Counter(example.construction for example in splits["train"])
    assert set(counts) == {construction.__name__ for construction in CONSTRUCTIONS}
    assert min(counts.values()) > 150
    text = "\n".join(example.target for example in splits["train"])
    for pattern in (
        r", (?:weil|obwohl|wenn|als|bevor|während|dass|ob) ", r", (?:der|die|das|den|dem|denen) ",
        r"\bnicht\b", r"\bkein", r" (?:ein|aus|auf|an|ab|mit|weg|zurück)[.,?]$",
        r"\b(?:ist|sind|bin) .*ge\w+en[.,]",
        r"\b(?:kann|muss|will|darf|sollte|konnte|wollte|musste)\b", r"\b(?:dessen|deren)\b",
        r"\b(?:[Ww]egen|[Tt]rotz|[Ww]ährend) (?:des|der|dieser|dieses)\b",
    ):  # fmt: skip
        assert len(re.findall(pattern, text, flags=re.MULTILINE)) > 100, pattern


def words_of(text):
    return re.findall(r"[\w']+", text)


def test_every_held_out_word_form_is_trained(splits):
    for side in (0, 1):
        trained = {word for example in splits["train"] for word in words_of(example[side])}
        for split in ("validation", "test"):
            assert {word for e in splits[split] for word in words_of(e[side])} <= trained


NOUN_FORMS = {form: n.english for n in ALL_NOUNS for form in (n.english, n.english_plural)}
VERB_FORMS = collections.defaultdict(set)
for _verb in ALL_VERBS:
    for _form in (_verb.english, lexicon.add_s(_verb.english), _verb.past):
        VERB_FORMS[_form].add(_verb.lemma)
PARTICLES = {verb.particle for verb in ALL_VERBS} - {""}
DETERMINING = set(DETERMINERS) | {"an", "its", "whose"}


def combinations_in(text):
    """(adjective, noun) and (verb, object) pairs, found in the words without the grammar."""
    words = words_of(text[0].lower() + text[1:])
    pairs = set()
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        if word in ALL_ADJECTIVES and following in NOUN_FORMS:
            pairs.add(("attribute", word, NOUN_FORMS[following]))
        if word in VERB_FORMS:
            rest, particle = words[i + 1 :], ""
            if rest and rest[0] in PARTICLES:
                particle = rest.pop(0)
            while rest and (rest[0] in DETERMINING or rest[0] in ALL_ADJECTIVES):
                rest.pop(0)
            lemma = f"{word_lemma(word)} {particle}".strip()
            if rest and rest[0] in NOUN_FORMS:
                pairs.add(("object", lemma, NOUN_FORMS[rest[0]]))
    return pairs


def word_lemma(form):
    return next(iter(VERB_FORMS[form])).split()[0]


def test_held_out_combinations_never_occur_in_training(splits):
    trained_metadata = {c for example in splits["train"] for c in example.combinations}
    trained_text = {pair for example in splits["train"] for pair in combinations_in(example.source)}
    for split in ("validation", "test"):
        kinds = collections.Counter()
        for example in splits[split]:
            new = {tuple(c) for c in example.combinations} - trained_metadata
            assert new, example
            assert not new & trained_text, example
            kinds.update(relation for relation, _, _ in new)
        assert min(kinds[relation] for relation in ("object", "subject", "attribute")) > 30
    # The text analysis is no empty promise: it finds what the metadata say, in numbers.
    assert len(trained_text & {tuple(c) for c in trained_metadata}) > 4_000


def test_validation_has_no_test_combinations(splits):
    test = {c for example in splits["test"] for c in example.combinations if split_of(c) == "test"}
    assert test and not test & {c for e in splits["validation"] for c in e.combinations}


# English words as they are linked, in the order of the German ones; "-" for a word without a link.
LINKS = {
    "The waitress gives back the cheap doors to an old son now.": (
        "Die Kellnerin gibt jetzt einem alten Sohn die billigen Türen zurück.",
        "The waitress gives now an old son the cheap doors back -",
    ),
    "The boys did not have to hide the old blouse this morning.": (
        "Die Jungen mussten heute Morgen die alte Bluse nicht verstecken.",
        "The boys have this morning the old blouse not hide -",
    ),
    "A niece photographed sick queens and obeyed them.": (
        "Eine Nichte hat kranke Königinnen fotografiert und ihnen gehorcht.",
        "A niece photographed sick queens photographed and them obeyed -",
    ),
    "When sick widows are lazy, they do not translate our novel.": (
        "Wenn kranke Witwen faul sind, übersetzen sie unseren Roman nicht.",
        "When sick widows lazy are - translate they our novel not -",
    ),
    "The brave painter admired the cellar in which the farmer lived.": (
        "Der mutige Maler hat den Keller bewundert, in dem der Bauer gewohnt hat.",
        "The brave painter admired the cellar admired - in which the farmer lived lived -",
    ),
}


def test_links_by_hand(everything):
    examples = {example.source: example for example in everything}
    for source, (target, expected) in LINKS.items():
        example = examples[source]
        assert example.target == target
        english, german = split_words(source), split_words(target)
        origin = {there: english[here] for here, there in example.links}
        assert " ".join(origin.get(i, "-") for i in range(len(german))) == expected


def test_nouns_are_linked_with_their_translation(everything):
    """Against the word lists."""
    nouns = {}
    for entry in ALL_NOUNS:
        forms = {form for number in entry.german.values() for form in number}
        for english in (entry.english, entry.english_plural):
            nouns.setdefault(english, set()).update(forms)
    linked = 0
    for example in everything[::10]:
        english, german = split_words(example.source), split_words(example.target)
        for here, there in example.links:
            word = english[here].removesuffix("'s")
            if word in nouns and german[there] in set().union(*nouns.values()):
                linked += 1
                assert german[there] in nouns[word], (example.source, example.target)
    assert linked > 1000


def test_links_are_of_words_and_each_german_word_has_one_at_most(splits):
    for example in splits["validation"]:
        there = [german for _, german in example.links]
        assert len(there) == len(set(there))
        assert max(there) < len(split_words(example.target))
        assert max(here for here, _ in example.links) < len(split_words(example.source))
        unlinked = len(split_words(example.target)) - len(there)
        assert unlinked <= 4  # punctuation, a German prefix, the article of a genitive


def test_the_package_ships_these_sentences_and_links(splits, everything):
    corpus = load_corpus("demo")
    for split, examples in splits.items():
        assert list(corpus.splits[split]) == [example[:2] for example in examples]
    assert corpus.alignments == {example[:2]: example.links for example in everything}
