"""Beams shared out between hypotheses by what they have of the phrases, beside a slow search with lists."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_attention import Translator
from keras_attention.decoding import ForcedPrefix, RequiredPhrases, TextConstraint
from keras_attention.decoding.token_rules import AllOf, RestrictedTokens
from keras_attention.engine.base import TokenRules
from tests.decoding.constrained import ALPHA, LastToken, search
from tests.decoding.oracle_search import penalty

END = 1
# One token, tokens that repeat, two phrases that share a token, none, more tokens than beams.
PHRASES = [[(4,)], [(3, 3, 0)], [(0, 5), (5, 2)], [], [(2, 0, 2, 4), (3,)]]
LIMITS = [6, 8, 7, 5, 9]


def had(phrase, tokens):
    """How much of a phrase a hypothesis has: all of it, or what it ends with."""
    size = len(phrase)
    if any(tokens[i : i + size] == phrase for i in range(len(tokens))):
        return size
    return max(n for n in range(size) if tokens[len(tokens) - n :] == phrase[:n])


def share_out(candidates, phrases, number):
    """The best of each bank, then the second of each, ...; of these the last bank's first, then by score."""
    banks = {}
    for score, tokens in sorted(candidates, reverse=True):
        bank = sum(had(phrase, tokens) for phrase in phrases)
        banks.setdefault(bank, []).append((score, tokens))
    chosen, last = [], max(banks, default=0)
    while banks:
        turn = [(bank == last, *found.pop(0)) for bank, found in banks.items()]
        chosen += [rest for _, *rest in sorted(turn, reverse=True)]
        banks = {bank: found for bank, found in banks.items() if found}
    return sorted(map(tuple, chosen[:number]), reverse=True)


def slow_search(row_of, size, phrases, prefix, limit, beam_size, forbidden):
    alive, finished = [(0.0, ())], []
    for index in range(limit):
        candidates = []
        for total, tokens in alive:
            row = row_of(tokens)
            left = [phrase for phrase in phrases if had(phrase, tokens) < len(phrase)]
            nexts = [phrase[had(phrase, tokens)] for phrase in left]
            may = {i for i in range(size) if i not in forbidden and not (left and i == END)}
            if left and limit - index <= sum(map(len, left)) + 1:
                fewest = min(range(len(left)), key=lambda i: len(left[i]) - had(left[i], tokens))
                may = {nexts[fewest]} - forbidden
            if index < len(prefix):
                may = {prefix[index]}
            best = sorted(may, key=lambda i: -row[i])[: 2 * beam_size]
            wanted = (set(nexts) & may) - set(best)
            candidates += [(total + row[i], (*tokens, i)) for i in [*best, *wanted]]
        candidates = share_out(candidates, phrases, 2 * beam_size)
        finished += [(s / penalty(index + 1, ALPHA), t) for s, t in candidates if t[-1] == END]
        finished = sorted(finished, reverse=True)[:beam_size]
        going_on = [each for each in candidates if each[1][-1] != END]
        alive = share_out(going_on, phrases, beam_size)
        bound = alive[0][0] / penalty(limit, ALPHA) if alive else -np.inf
        if len(finished) == beam_size and finished[-1][0] > bound:
            break
    return finished


@pytest.mark.parametrize(
    "kind, beam_size, size",
    [("plain", 2, 41), ("plain", 3, 7), ("plain", 4, 41), ("prefix", 3, 23), ("rules", 4, 17)],
)
def test_beams_are_shared_out_as_by_a_slow_search(kind, beam_size, size):
    tables = LastToken(seed=3 + beam_size, num_sentences=5, vocabulary_size=size, sharpness=2.5)
    constraint, forbidden, prefixes = RequiredPhrases(size, END), set(), [()] * 5
    state = constraint.start(PHRASES, LIMITS, beam_size)
    if kind == "rules":
        forbidden = {6, 8}
        rules = RestrictedTokens(size, END, TokenRules(banned=np.array([[6], [8]], "int32")))
        constraint, state = AllOf([rules, constraint]), (rules.start(LIMITS, beam_size), state)
    if kind == "prefix":  # One begins with a part of a phrase, one has a phrase.
        prefixes = [(), (2, 3, 3), (5, 2), (7,), ()]
        constraint = ForcedPrefix(size, constraint)
        state = constraint.start(prefixes, LIMITS, beam_size, state)
    found = search(tables, LIMITS, beam_size, END, constraint, state)
    for row, (phrases, prefix, limit) in enumerate(zip(PHRASES, prefixes, LIMITS, strict=True)):
        expected = slow_search(
            lambda tokens, row=row: tables.log_probabilities(row, tokens),
            size, phrases, prefix, limit, beam_size, forbidden,
        )  # fmt: skip
        got = [(tokens, score) for score, tokens, is_finished in found[row] if is_finished]
        assert [tokens for tokens, _ in got] == [tokens for _, tokens in expected]
        np.testing.assert_allclose([s for _, s in got], [s for s, _ in expected], rtol=2e-5)
        assert all(had(phrase, tokens) == len(phrase) for phrase in phrases for tokens, _ in got)
    assert all(found)


class WithoutShares(RequiredPhrases):
    """As it was: the most probable hypotheses are kept, whatever they contain."""

    goals = None


@pytest.mark.backends("torch")
def test_phrases_come_in_translations_of_ordinary_length():
    """With a beam of 4 the score is better than with a beam of 16 that is not shared out."""
    translator = Translator.from_preset("demo_en_de", engine=keras.backend.backend())
    sources = {
        "The dog sleeps.": ["Katze"],
        "The cat sees the small house.": ["Hund"],
        "This baker owns the green ropes.": ["die grünen Stricke"],
        "The lonely woman waits every morning.": ["Mann", "jeden Abend"],
    }
    texts, phrases = list(sources), list(sources.values())
    free = [best[0] for best in translator.translate(texts)]
    shared = [best[0] for best in translator.translate(texts, phrases=phrases)]

    def start(texts, *sizes):
        ids = [translator.tokenizer.encode(sources.get(text, [])) for text in texts]
        return without.start(ids, *sizes)

    without = WithoutShares(translator.model.vocabulary_size, translator.model.end_token_id)
    wide = dataclasses.replace(translator, beam_size=16, constraint=TextConstraint(without, start))
    before = [best[0] for best in wide.translate(texts)]
    for text, own, old, new in zip(texts, free, before, shared, strict=True):
        wanted = sources[text]
        assert all(phrase in new.text and phrase not in own.text for phrase in wanted)
        tokens = sum(map(len, translator.tokenizer.encode(wanted)))
        assert len(new.token_ids) <= len(own.token_ids) + tokens + 2, new.text
        assert new.score > old.score and all(phrase in old.text for phrase in wanted)
