"""Independent searches in plain Python: every hypothesis, and a beam written from the facts."""

from __future__ import annotations

import itertools
import math

import keras
import numpy as np


class Tables:
    """P(next token | everything before), a different distribution for each prefix, per sentence."""

    def __init__(self, seed: int, num_sentences: int, vocabulary_size: int, sharpness: float = 1.5):
        self.vocabulary_size = vocabulary_size
        self._logits = {}
        self._seed = seed
        self._sharpness = sharpness
        self.num_sentences = num_sentences

    def log_probabilities(self, sentence: int, prefix: tuple[int, ...]) -> np.ndarray:
        key = (sentence, prefix)
        if key not in self._logits:
            random = np.random.default_rng([self._seed, sentence, len(prefix), *prefix])
            self._logits[key] = self._sharpness * random.standard_normal(self.vocabulary_size)
        logits = self._logits[key]
        return logits - np.log(np.sum(np.exp(logits)))

    def slow_search(self, sentence, end, limit, alpha, beam_size, stop):
        """`slow_beam_search` of a sentence."""
        return slow_beam_search(
            lambda prefix: self.log_probabilities(sentence, prefix),
            self.vocabulary_size,
            end,
            limit,
            alpha,
            beam_size,
            stop,
        )


# Beams, length penalties and stopping rules; with these limits a beam of 7 is larger than a vocabulary of 5.
SEARCHES = [
    (1, 0.6, "best"),
    (2, 0.6, "best"),
    (3, 0.0, "n_best"),
    (3, 1.0, "n_best_2017"),
    (7, 0.6, "best"),
    (7, 0.6, "n_best"),
]
LIMITS = [4, 5, 1, 3, 5, 2, 5, 4, 0, 5, 5]


def penalty(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def every_hypothesis(log_probabilities, vocabulary_size, end, limit, alpha):
    """All sequences that end with EOS within `limit` tokens, best first: [(score, tokens)]."""
    others = [token for token in range(vocabulary_size) if token != end]
    found = []
    for length in range(1, limit + 1):
        for body in itertools.product(others, repeat=length - 1):
            tokens = (*body, end)
            total = sum(log_probabilities(tokens[:i])[tokens[i]] for i in range(length))
            found.append((total / penalty(length, alpha), tokens))
    return sorted(found, reverse=True)


def slow_beam_search(log_probabilities, vocabulary_size, end, limit, alpha, beam_size, stop):
    """Section 4 of the facts for one sentence, with Python lists.

    Returns [(score, tokens, is_finished)], best first, and the number of steps it took.
    """
    alive, finished, steps = [(0.0, ())], [], 0
    while steps < limit:
        candidates = []
        for beam, (total, tokens) in enumerate(alive):
            row = log_probabilities(tokens)
            for token in range(vocabulary_size):
                candidates.append((-(total + row[token]), beam, token, (*tokens, token)))
        # Greedy search takes the likeliest token, an end or not.
        candidates = sorted(candidates)[: 2 * beam_size if beam_size > 1 else 1]
        steps += 1
        alive = [(-c[0], c[3]) for c in candidates if c[2] != end][:beam_size]
        finished += [(-c[0] / penalty(steps, alpha), c[3]) for c in candidates if c[2] == end]
        finished = sorted(finished, key=lambda pair: -pair[0])[:beam_size]
        if not alive:
            break
        bound = alive[0][0] / penalty(limit, alpha)
        scores = [score for score, _ in finished]
        if stop == "best" and scores and max(scores) > bound:
            break
        if stop == "n_best" and len(scores) == beam_size and min(scores) > bound:
            break
        if stop == "n_best_2017" and scores and min(scores) > bound:
            break
    if finished:
        return [(score, tokens, True) for score, tokens in finished], steps
    return [(total, tokens, False) for total, tokens in alive if tokens], steps


def greedy(log_probabilities, end, limit):
    """The likeliest token each time: (log-probability, tokens)."""
    tokens, total = (), 0.0
    while len(tokens) < limit and (not tokens or tokens[-1] != end):
        row = log_probabilities(tokens)
        best = int(np.argmax(row))
        total += row[best]
        tokens = (*tokens, best)
    assert not math.isnan(total)
    return total, tokens


def as_list(result):
    """A `BeamSearchResult` for each sentence: [(score, tokens, is_finished)], without the empty slots."""
    sequences, scores, lengths, finished = (keras.ops.convert_to_numpy(field) for field in result)
    assert sequences.dtype == np.int32 and lengths.dtype == np.int32
    assert scores.dtype == np.float32 and finished.dtype == bool
    sentences = []
    for b in range(len(scores)):
        assert np.all(scores[b, :-1] >= scores[b, 1:]), "best first"
        slots = []
        for k in range(scores.shape[1]):
            length = lengths[b, k]
            assert np.all(sequences[b, k, length:] == 0), "padding behind the end"
            if length:
                tokens = tuple(int(token) for token in sequences[b, k, :length])
                slots.append((float(scores[b, k]), tokens, bool(finished[b, k])))
            else:
                assert scores[b, k] == -np.inf and not finished[b, k]
        sentences.append(slots)
    return sentences


def assert_same(got, expected):
    """Same hypotheses, in the same order, with scores that agree to rounding."""
    assert [(tokens, is_finished) for _, tokens, is_finished in got] == [
        (tuple(tokens), is_finished) for _, tokens, is_finished in expected
    ]
    np.testing.assert_allclose(
        [score for score, *_ in got], [score for score, *_ in expected], rtol=2e-5
    )
