"""Independent searches in plain Python: every hypothesis, and a beam written from the facts."""

from __future__ import annotations

import itertools
import math

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
        candidates = sorted(candidates)[: 2 * beam_size]
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
    return [(total, tokens, False) for total, tokens in alive], steps


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
