"""Which target tokens translate a source token: model 1 of Brown et al. (1993), in NumPy.

Shape letters: V_s and V_t vocabularies, E entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Pairs of a source and a target token of one sentence, of which the lexicon is made: a few seconds' worth.
MOST_PAIRS = 20_000_000
ITERATIONS = 5
LEAST_PROBABILITY = 0.01


class Lexicon(NamedTuple):
    """The likely translations of each source token."""

    starts: np.ndarray  # int64 (V_s + 1,), where the translations of each source token begin
    tokens: np.ndarray  # int32 (E,)
    probabilities: np.ndarray  # float32 (E,)


def train_lexicon(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], source_size: int, size: int
) -> Lexicon:
    """Estimate the translations of source tokens by expectation maximisation.

    Args:
        sources, targets: Token ids of sentence pairs; of more than 20 million pairs of tokens, the first ones
            count.
        source_size: V_s.
        size: V_t.
    """
    codes: list[np.ndarray] = []
    groups: list[np.ndarray] = []
    first = number = 0
    for source, target in zip(sources, targets, strict=True):
        number += len(source) * len(target)
        if codes and number > MOST_PAIRS:
            break
        pair = np.asarray(source, "int64")[None] * size + np.asarray(target, "int64")[:, None]
        codes.append(pair.reshape(-1))
        groups.append(np.repeat(first + np.arange(len(target)), len(source)))
        first += len(target)
    unique, entries = np.unique(np.concatenate(codes), return_inverse=True)
    group = np.concatenate(groups)
    source_of = unique // size
    probabilities = np.ones(len(unique))
    for _ in range(ITERATIONS):
        weights = probabilities[entries]
        weights /= np.bincount(group, weights, first)[group]
        counts = np.bincount(entries, weights, len(unique))
        probabilities = counts / np.bincount(source_of, counts, source_size)[source_of]
    kept = probabilities >= LEAST_PROBABILITY
    starts = np.searchsorted(source_of[kept], np.arange(source_size + 1))
    tokens = (unique[kept] % size).astype("int32")
    return Lexicon(starts.astype("int64"), tokens, probabilities[kept].astype("float32"))


def translations(lexicon: Lexicon, source_ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return target tokens (T,), and the mean probability (T,) of each, given each token of a source."""
    ids = np.asarray(source_ids, "int64")
    ids = ids[ids + 1 < len(lexicon.starts)]
    begins, counts = lexicon.starts[ids], lexicon.starts[ids + 1] - lexicon.starts[ids]
    ends = counts.cumsum()
    places = np.arange(counts.sum()) + np.repeat(begins - ends + counts, counts)
    tokens, where = np.unique(lexicon.tokens[places], return_inverse=True)
    sums = np.bincount(where, lexicon.probabilities[places], len(tokens))
    return tokens, sums / max(1, len(source_ids))
