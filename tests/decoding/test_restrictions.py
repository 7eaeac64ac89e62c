"""Restrictions, prefixes and phrases against all sequences over a small vocabulary that a rule accepts."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest

from keras_attention import Restrictions, Sampling, Tokenizer, Translator
from keras_attention.decoding import ForcedPrefix, RequiredPhrases
from keras_attention.decoding.restrictions import _spellings, has_loop
from keras_attention.decoding.token_rules import AllOf, RestrictedTokens
from keras_attention.engine.base import TokenRules
from tests.decoding.letters import (
    CopyModel,
    LetterTokenizer,
    assert_alike,
    forward_log_probabilities,
    random_texts,
    small_model,
)
from tests.decoding.oracle_search import penalty
from tests.decoding.test_constraints import LastToken, assert_all_found, contains, search
from tests.decoding.test_sampling import ENGINES

BACKEND = keras.backend.backend()
END = 1


def table(*phrases):
    rows = np.full((len(phrases), max(map(len, phrases))), -1, "int32")
    for row, phrase in enumerate(phrases):
        rows[row, : len(phrase)] = phrase
    return rows


def keeps(rules, tokens, end):
    """Whether a whole hypothesis, with its end, keeps rules; written from their words."""
    body, size = tokens[:-1], rules.ngram
    grams = [body[i : i + size] for i in range(len(body) - size + 1)] if size else []
    banned = (
        [] if rules.banned is None else [tuple(i for i in row if i >= 0) for row in rules.banned]
    )
    return (
        tokens[-1] == end
        and len(set(grams)) == len(grams)
        and len(body) >= rules.min_length
        and (not rules.max_length or len(body) <= rules.max_length)
        and not any(contains(body, phrase) for phrase in banned)
    )


RULES = [
    TokenRules(ngram=1),
    TokenRules(ngram=2),
    TokenRules(ngram=3, min_length=2),
    TokenRules(banned=table([2], [3, 0])),
    TokenRules(banned=table([0, 0, 2], [3, 3])),
    TokenRules(ngram=2, min_length=1, max_length=3, banned=table([2, 3])),
]
ON_TORCH = BACKEND == "torch"  # A compiler compiles each: the rules are the same operations.


@pytest.mark.parametrize("rules", RULES if ON_TORCH else RULES[-1:])
def test_rules_against_all_sequences(rules):
    """Of a vocabulary of 4, with beams for all of them."""
    limits = [5, 4, 3]
    tables = LastToken(seed=8, num_sentences=3, vocabulary_size=4)
    constraint = RestrictedTokens(4, END, rules)
    got = search(tables, limits, 200, END, constraint, constraint.start(limits, 200))
    assert_all_found(got, tables, limits, END, lambda sentence, tokens: keeps(rules, tokens, END))


def test_a_prefix_before_several_constraints_at_once():
    """The prefix breaks the rules itself: they hold behind it."""
    prefixes, limits = [[2, 2], [], [3]], [5, 4, 5]
    rules = TokenRules(ngram=1, min_length=3)
    tables = LastToken(seed=5, num_sentences=3, vocabulary_size=4)
    restricted, required = RestrictedTokens(4, END, rules), RequiredPhrases(4, END)
    constraint = ForcedPrefix(4, AllOf([restricted, required]))
    states = restricted.start(limits, 90), required.start([[[0]], [], [[0]]], limits, 90)
    got = search(
        tables, limits, 90, END, constraint, constraint.start(prefixes, limits, 90, states)
    )

    def accepts(sentence, tokens):
        prefix = tuple(prefixes[sentence])
        behind, body = tokens[len(prefix) : -1], tokens[:-1]
        # Where the room is just enough for the phrase, it comes at once.
        return (
            tokens[: len(prefix)] == prefix
            and tokens[-1] == END
            and len(body) >= 3
            and all(token not in body[: len(prefix) + i] for i, token in enumerate(behind))
            and (sentence == 1 or 0 in body)
        )

    assert_all_found(got, tables, limits, END, accepts)


CASES = [
    (Restrictions(no_repeat_ngram_size=1), ""),
    (Restrictions(no_repeat_ngram_size=2, banned=["da", "c"], min_length=1, max_length=3), ""),
    (Restrictions(min_length=2, banned=["b"]), "ab"),
    (Restrictions(no_repeat_ngram_size=1), "cc"),
    (None, "d"),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("restrictions, prefix", CASES if ON_TORCH else CASES[1:3])
def test_engines_find_the_best_of_all_sequences(seven, restrictions, prefix, engine):
    """All hypotheses of at most 4 tokens over 7, by the training forward; beams for all of them."""
    tokenizer = LetterTokenizer(7)
    translator = Translator(
        seven,
        tokenizer,
        beam_size=400,
        max_extra_length=2,
        engine=engine,
        restrictions=restrictions,
        batch_size=1,
    )
    found = translator.translate("b", n_best=12, unique=False, prefixes=prefix)
    rules = restrictions.token_rules(tokenizer) if restrictions else TokenRules()
    start = tuple(tokenizer.encode([prefix])[0])
    log_probabilities = forward_log_probabilities(seven, "b", 4)
    wanted = []

    def grow(tokens, score):
        for token in range(7):
            body, total = tokens, score + log_probabilities(tokens)[token]
            if len(body) < len(start):
                if token == start[len(body)]:
                    grow((*body, token), total)
            elif token == END:
                if len(body) >= rules.min_length:
                    wanted.append((total / penalty(len(body) + 1, 0.6), body))
            elif len(body) < min(3, rules.max_length or 3):
                longer = (*body, token)
                size, banned = rules.ngram, [] if rules.banned is None else rules.banned
                last = longer[len(longer) - size :]
                if size and any(longer[i : i + size] == last for i in range(len(longer) - size)):
                    continue
                phrases = [tuple(i for i in row if i >= 0) for row in banned]
                if not any(longer[-len(phrase) :] == phrase for phrase in phrases):
                    grow(longer, total)

    grow((), 0.0)
    wanted = sorted(wanted, reverse=True)[:12]
    assert [t.token_ids for t in found] == [tokens for _, tokens in wanted]
    np.testing.assert_allclose([t.score for t in found], [score for score, _ in wanted], rtol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_samples_keep_restrictions(engine):
    translator = Translator(
        small_model(seed=11),
        LetterTokenizer(),
        max_extra_length=6,
        engine=engine,
        sampling=Sampling(temperature=2.0),
        restrictions=Restrictions(no_repeat_ngram_size=1, banned=["h"], min_length=2),
    )
    texts = random_texts(4, longest=8)
    found = translator.translate(texts, n_best=5)
    assert_alike(found, dataclasses.replace(translator, engine="plain").translate(texts, n_best=5))
    for one in itertools.chain(*found):
        assert len(set(one.token_ids)) == len(one.token_ids) >= 2 and "h" not in one.text


@pytest.mark.backends("torch")
def test_banned_words_are_spelled_with_and_without_the_mark_and_in_each_case():
    texts = ["das Haus (haus) HAUS Gartenhaus", "ein Haus, ein haus-Dach"] * 9
    tokenizer = Tokenizer.train(texts, vocabulary_size=330)
    spelled = _spellings(tokenizer, "haus")
    assert {tokenizer.decode(ids) for ids in spelled} == {"haus", "Haus", "HAUS"}
    pieces = {tokenizer.id_to_token(ids[0]) for ids in spelled}
    assert any(piece.startswith("▁") for piece in pieces)
    assert any(not piece.startswith("▁") for piece in pieces)
    assert _spellings(tokenizer, "\u200bha\u00adus") == spelled
    for wrong in ("\u200b", "\ud800"):
        with pytest.raises(ValueError, match="`banned` must hold words"):
            Restrictions(banned=["haus", wrong])


@pytest.mark.backends("torch")
def test_what_the_vocabulary_cannot_write_needs_no_ban():
    assert Restrictions(banned=["Z"]).token_rules(LetterTokenizer()) is None
    assert Restrictions().token_rules(LetterTokenizer()) is None


class Untouched(CopyModel):
    def encode(self, encoder_token_ids):
        pytest.fail("The work began.")


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "options, call, message",
    [
        ({}, {"prefixes": ["", "abcd"]}, "Text 1 needs a translation of at least 5 tokens .* may have 4"),
        ({}, {"phrases": [["ab", "c"], []]}, "Text 0 needs a translation of at least 4 tokens"),
        ({}, {"prefixes": ["ab", ""], "phrases": [["c"], []]}, "Text 0 needs .* at least 4 tokens"),
        ({"restrictions": Restrictions(min_length=3)}, {}, "Text 0 needs .* at least 4 tokens"),
        ({"restrictions": Restrictions(max_length=2)}, {"prefixes": ["", "abc"]},
         r"Text 1 needs .* may have 3. Ask for less, or raise `max_length` of .* \(--max-length\): 'bc'"),
        ({"restrictions": Restrictions(max_length=2)}, {"prefixes": ["", "abcd"]},
         r"may have 3. Ask for less, or raise `max_extra_length` \(--max-extra-length\) and raise `max_len"),
        ({"sampling": Sampling()}, {"prefixes": ["", "abcd"], "n_best": 5},
         r"Text 1 needs .* may have 4. Ask for less, or raise `max_extra_length` \(--max-extra-length\): "),
        ({}, {"prefixes": ["a"]}, "`prefixes` must be a list with a str for each text. Received: 1 for 2"),
        ({}, {"prefixes": np.array(3)}, r"`prefixes` must be a list .*Received: array\(3\)"),
        ({}, {"prefixes": ["a", 3]}, r"`prefixes` must hold a str .*prefixes\[1\]=3"),
        ({}, {"phrases": [["a"], "b"]}, r"`phrases` must hold a list of str .*phrases\[1\]='b'"),
        ({}, {"phrases": [["a"], [" "]]}, r"phrases\[1\]=\[' '\]"),
        ({}, {"prefixes": ["a", "\ud800"]}, "`prefixes` must hold"),  # half a character
        ({}, {"phrases": [["a"], ["\ud800"]]}, "`phrases` must hold"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_before_any_work(options, call, message):
    translator = Translator(Untouched(), LetterTokenizer(31), max_extra_length=1, **options)
    with pytest.raises(ValueError, match=message):
        translator.translate(["a", "bc"], **call)


@pytest.mark.backends("torch")
def test_learned_positions_that_leave_no_room_are_named():
    model = small_model(position_layout="learned", max_length=4)
    with pytest.raises(ValueError, match="may have 4. Ask for less, or take a model with more pos"):
        Translator(model, LetterTokenizer()).translate("ab", prefixes="abcd")


@pytest.mark.backends("torch")
def test_an_empty_text_has_no_prefix():
    translator = Translator(Untouched(), LetterTokenizer(31))
    with pytest.raises(ValueError, match="Text 1 is empty"):
        translator.translate(["a", " "], prefixes=["", "b"])


@pytest.mark.backends("torch")
def test_a_text_for_which_nothing_is_left():
    """No token twice, and no letter at all: two special tokens are left, but the least length is 3."""
    letters = [chr(ord("a") + i) for i in range(28)]
    restrictions = Restrictions(1, letters, min_length=3)
    translator = Translator(
        CopyModel(), LetterTokenizer(31), max_extra_length=3, restrictions=restrictions
    )
    with pytest.raises(ValueError, match="Text 0 has no translation that keeps all restrictions"):
        translator.translate(["ab"])


@pytest.mark.backends("torch")
def test_phrases_are_not_numbas():
    pytest.importorskip("numba")
    translator = Translator(small_model(), LetterTokenizer(), engine="numba", max_extra_length=9)
    with pytest.raises(
        ValueError, match="'numba' makes the whole search, without constraints and phr"
    ):
        translator.translate("ab", phrases=["c"])


def repeats_itself(text):
    """A loop in letters and single spaces, by trying all stretches."""
    text = f" {text}"
    for start, size in itertools.product(range(len(text)), range(1, 8)):
        unit = text[start : start + size]
        ends = [start + size * k for k in (3, 4) if text.startswith(unit * k, start)]
        is_word = unit[0] == " " and len(unit) > 1
        if len(ends) > 1 or (is_word and ends and not text[ends[0] : ends[0] + 1].isalpha()):
            return True
    return False


@pytest.mark.backends("torch")
def test_what_a_loop_is():
    random, seen = np.random.default_rng(5), []
    for _ in range(3000):
        words = "".join(random.choice([*"aabb "], random.integers(4, 15))).split()
        text = " ".join(words)
        seen.append(has_loop(text, ""))
        assert seen[-1] == repeats_itself(text), text
        assert not has_loop(text, text) and not has_loop(text.upper(), text.replace(" ", "  "))
    assert 300 < sum(seen) < 2700
    for text, source, expected in (
        ("Salat Salat Salat", "salad", True),
        ("Er sagte, sie sei da, sie sei da, sie sei da, sie", "He said it", True),
        ("沙拉沙拉沙拉沙拉", "salad", True),
        ("nein, nein, nein, nein", "no no no no", False),
        ("Ahahahahahah", "ahahaha", False),
        ("Apfel Apfel Apfel Apfel", "apple", True),
        ("1.000.000.000.000", "1 trillion", False),  # without letters
        ("Schifffahrt ... ------", "shipping", False),
        ("das, das daswegen", "that", False),
    ):
        assert has_loop(text, source) == expected, text


class Stuck(CopyModel):
    """Says "b" for ever if the source begins with it."""

    def encode(self, encoder_token_ids):
        is_stuck = encoder_token_ids[:, :1] == 4
        return super().encode(keras.ops.where(is_stuck, 4, encoder_token_ids))


@pytest.mark.backends("torch")
def test_only_what_loops_is_translated_again():
    translator = Translator(Stuck(), LetterTokenizer(31), beam_size=3, max_extra_length=7)
    texts = ["acd", "bcd", "", "bbbbbbbbbbbb", "cdb"]
    before = translator.translate(texts, n_best=2, prefixes=["", "c", "", "", ""])
    breaking = dataclasses.replace(translator, break_loops=True)
    found = breaking.translate(texts, n_best=2, prefixes=["", "c", "", "", ""])
    assert before[1][0].text.startswith("cbbbb") and not before[1][0].had_loop
    blocked = dataclasses.replace(translator, restrictions=Restrictions(2))
    again = blocked.translate("bcd", n_best=2, prefixes="c")
    assert found[1] == [dataclasses.replace(one, had_loop=True) for one in again]
    assert not has_loop(found[1][0].text, "bcd")
    assert [found[row] for row in (0, 2, 4)] == [before[row] for row in (0, 2, 4)]
    # What cannot be had without repetitions stays, and is marked.
    short = dataclasses.replace(
        breaking, restrictions=Restrictions(min_length=40), max_extra_length=60
    )
    [kept] = short.translate("bcd")
    assert kept.had_loop and len(kept.text) >= 40
    with pytest.raises(ValueError, match="`break_loops` is for the likeliest translation"):
        dataclasses.replace(breaking, sampling=Sampling())
    with pytest.raises(
        ValueError, match=r"this model: engine='numpy' has no .* no `break_loops`\."
    ):
        Translator(small_model(), LetterTokenizer(), engine="numpy", break_loops=True)
