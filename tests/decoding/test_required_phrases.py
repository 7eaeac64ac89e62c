"""Beams shared out between hypotheses by what they have of the phrases, beside a slow search with lists."""

import dataclasses
import re

import keras
import numpy as np
import pytest

from keras_attention import Transformer, Translator
from keras_attention.data.joints import Joints
from keras_attention.decoding import ForcedPrefix, RequiredPhrases
from keras_attention.decoding.token_rules import AllOf, RestrictedTokens
from keras_attention.engine.base import TokenRules
from tests.decoding.constrained import ALPHA, LastToken, search
from tests.decoding.oracle_search import penalty

END = 1
# One token, tokens that repeat, two phrases that share a token, none, more tokens than beams.
PHRASES = [[(4,)], [(3, 3, 0)], [(0, 5), (5, 2)], [], [(2, 0, 2, 4), (3,)]]
LIMITS = [6, 8, 7, 5, 9]
A = 3  # a letter, of the tokens of `Words` below
# A compiler compiles each case.
ON_TORCH = keras.backend.backend() == "torch"
CASES = [("plain", 2, 41), ("plain", 3, 7), ("plain", 4, 41), ("prefix", 3, 23), ("rules", 4, 17)]
BEAMS = [(2, ""), (3, ""), (4, ""), (1, ""), (2, "defghijklmn")]


class Words(list):
    """The text of each token. A word goes on where a letter stands behind a letter."""

    def join(self, left, right):
        return self[left][-1:].isalpha() and self[right][:1].isalpha()

    def had(self, phrase, tokens):
        """How much of a phrase a hypothesis has as whole words: all of it, or what it ends with."""
        size, end = len(phrase), len(tokens)
        inside = {i for i in range(1, end) if self.join(*tokens[i - 1 : i + 1])}
        for i in range(end - size + 1):
            if tokens[i : i + size] == phrase and not inside & {i, i + size}:
                return size
        begun = (n for n in range(1, size) if tokens[max(0, end - n) :] == phrase[:n])
        return max((n for n in begun if end - n not in inside), default=0)


def share_out(candidates, phrases, number, words):
    """The best of each bank, then the second of each, ...; of these the last bank's first, then by score."""
    banks = {}
    for score, tokens in sorted(candidates, reverse=True):
        bank = sum(words.had(phrase, tokens) for phrase in phrases)
        banks.setdefault(bank, []).append((score, tokens))
    chosen, last = [], max(banks, default=0)
    while banks:
        turn = [(bank == last, *found.pop(0)) for bank, found in banks.items()]
        chosen += [rest for _, *rest in sorted(turn, reverse=True)]
        banks = {bank: found for bank, found in banks.items() if found}
    return sorted(map(tuple, chosen[:number]), reverse=True)


def slow_search(row_of, words, phrases, prefix, limit, beam_size, forbidden):
    alive, finished = [(0.0, ())], []
    for index in range(limit):
        candidates = []
        for total, tokens in alive:
            row = row_of(tokens)
            left = [phrase for phrase in phrases if words.had(phrase, tokens) < len(phrase)]
            nexts = [phrase[words.had(phrase, tokens)] for phrase in left]
            may = set(range(len(words))) - forbidden - ({END} if left else set())
            spare = limit - index - sum(map(len, left)) - 1
            # What is there, and would not be with a letter behind it, which then has room again.
            open_ones = [
                p for p in phrases if p not in left and words.had(p, (*tokens, A)) < len(p)
            ]
            if spare <= sum(map(len, open_ones)):
                may -= {i for i in may if open_ones and words.join(tokens[-1], i)}
            if (
                spare == 1
            ):  # Nothing that the phrase that must come then would go on with, but one's own.
                had = sum(words.had(each, tokens) for each in phrases)
                helping = {
                    i for i in nexts if sum(words.had(each, (*tokens, i)) for each in phrases) > had
                }
                joined = {i for i in may if any(words.join(i, phrase[0]) for phrase in left)}
                may -= joined - helping
            if left and spare <= 0:
                fewest = min(
                    range(len(left)), key=lambda i: len(left[i]) - words.had(left[i], tokens)
                )
                breaks = open_ones and words.join(tokens[-1], nexts[fewest])
                may = {left[fewest][0] if breaks else nexts[fewest]} - forbidden
            if index < len(prefix):
                may = {prefix[index]}
            best = sorted(may, key=lambda i: -row[i])[: 2 * beam_size]
            if open_ones:  # Some token that ends the word of what is there, and the end itself.
                others = {i for i in range(len(words)) if not words.join(tokens[-1], i)} - {END}
                nexts += [max(others, key=lambda i: row[i]), END]
            wanted = (set(nexts) & may) - set(best)
            candidates += [(total + row[i], (*tokens, i)) for i in [*best, *wanted]]
        candidates = share_out(candidates, phrases, 2 * beam_size, words)
        finished += [(s / penalty(index + 1, ALPHA), t) for s, t in candidates if t[-1] == END]
        finished = sorted(finished, reverse=True)[:beam_size]
        going_on = [each for each in candidates if each[1][-1] != END]
        alive = share_out(going_on, phrases, beam_size, words)
        bound = alive[0][0] / penalty(limit, ALPHA) if alive else -np.inf
        if len(finished) == beam_size and finished[-1][0] > bound:
            break
    return finished


def assert_as_slowly(
    words, phrases, limits, beam_size, constraint, state, prefixes=None, forbidden=()
):
    tables = LastToken(
        seed=3 + beam_size, num_sentences=5, vocabulary_size=len(words), sharpness=2.5
    )
    found = search(tables, limits, beam_size, END, constraint, state)
    assert all(found)
    for row, (wanted, prefix, limit) in enumerate(
        zip(phrases, prefixes or [()] * 5, limits, strict=True)
    ):
        every = [tokens for _, tokens, _ in found[row]]  # Also what is cut off before its end.
        assert all(words.had(each, tokens) == len(each) for each in wanted for tokens in every)
        if beam_size == 1:  # It considers one token, and shares nothing out.
            continue
        expected = slow_search(
            lambda tokens, row=row: tables.log_probabilities(row, tokens),
            words, wanted, prefix, limit, beam_size, set(forbidden),
        )  # fmt: skip
        got = [(tokens, score) for score, tokens, is_finished in found[row] if is_finished]
        assert [tokens for tokens, _ in got] == [tokens for _, tokens in expected]
        np.testing.assert_allclose([s for _, s in got], [s for s, _ in expected], rtol=2e-5)


@pytest.mark.parametrize("kind, beam_size, size", CASES if ON_TORCH else CASES[3:])
def test_beams_are_shared_out_as_by_a_slow_search(kind, beam_size, size):
    constraint, forbidden, prefixes = RequiredPhrases(size, END), set(), None
    state = constraint.start(PHRASES, LIMITS, beam_size)
    if kind == "rules":
        forbidden = {6, 8}
        rules = RestrictedTokens(size, END, TokenRules(banned=np.array([[6], [8]], "int32")))
        constraint, state = AllOf([rules, constraint]), (rules.start(LIMITS, beam_size), state)
    if kind == "prefix":  # One begins with a part of a phrase, one has a phrase.
        prefixes = [(), (2, 3, 3), (5, 2), (7,), ()]
        constraint = ForcedPrefix(size, constraint)
        state = constraint.start(prefixes, LIMITS, beam_size, state)
    words = Words([" "] * size)  # Nothing is joined.
    assert_as_slowly(words, PHRASES, LIMITS, beam_size, constraint, state, prefixes, forbidden)


@pytest.mark.parametrize("beam_size, more", BEAMS if ON_TORCH else BEAMS[3:])
@pytest.mark.parametrize(
    "phrases, limits",
    [
        ([[(0,)], [(0, 3), (0,)], [(2, 3, 4), (5,)], [(3, 4)], [(0, 0, 3), (0, 8)]], LIMITS),
        ([[(3,)], [(4, 4, 3)], [(0, 3), (0,)], [(8,)], [(8, 4, 8, 3)]], [7, 9, 4, 6, 10]),
    ],
)
def test_a_phrase_is_of_whole_words(phrases, limits, beam_size, more):
    """Also one that begins as another does, or within a word, and where there is no room to spare."""
    words = Words(["▁k", "", "▁h", "a", "b", ",", "▁", "▁x", "c", "-", "▁m", *more])
    constraint = RequiredPhrases(len(words), END, Joints.of_pieces(words))
    state = constraint.start(phrases, limits, beam_size)
    assert_as_slowly(words, phrases, limits, beam_size, constraint, state)


@pytest.mark.backends("torch")
@pytest.mark.parametrize("engine, beam_size", [("auto", 4), ("auto", 1), ("plain", 2)])
def test_the_model_adds_no_letters_to_a_phrase(engine, beam_size):
    """It made "Katerft" of "Kater", which two tokens spell; a prefix that ends so may go on, too."""
    translator = Translator.from_preset("demo_en_de", beam_size=beam_size)
    if engine == "plain":
        model = Transformer.from_preset("demo_en_de")
        translator = dataclasses.replace(translator, model=model, engine=engine)
    asked = {
        "The dog sleeps.": ("", ["Kater", "Bä"]),
        "The cat sees the small house.": ("Die Ka", ["Ka"]),
        "The dog waits in the garden.": ("Der Hund", ["Hu"]),
    }
    prefixes, phrases = map(list, zip(*asked.values(), strict=True))
    found = translator.translate([*asked], prefixes=prefixes, phrases=phrases)
    for best, wanted in zip(found, phrases, strict=True):
        assert all(re.search(rf"\b{phrase}\b", best[0].text) for phrase in wanted), best[0].text
