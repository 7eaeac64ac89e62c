"""How often tokens follow others: sorted n-grams of a text, with back-off to shorter ones.

A context of m tokens is a node of its level, m. Its key is the node of its last m - 1 tokens times the number
of ids, plus the token before them, so one binary search leads from a level to the next.

Shape letters: T tokens, M nodes of a level, E continuations of all its nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Of a context's continuations the most frequent ones are kept.
MOST_CONTINUATIONS = 8


class Level(NamedTuple):
    """The contexts of one length, and what follows each."""

    keys: np.ndarray  # int64 (M,), ascending
    starts: np.ndarray  # int64 (M + 1,), where the continuations of each node begin
    tokens: np.ndarray  # int32 (E,), of each node the most frequent first
    counts: np.ndarray  # int32 (E,)
    totals: np.ndarray  # int32 (M,), how often each context occurs
    kinds: np.ndarray  # int32 (M,), how many tokens follow it


def count_ngrams(
    sequences: Sequence[Sequence[int]], vocabulary_size: int, order: int
) -> list[Level]:
    """Count the n-grams of some sequences, up to those of `order` tokens.

    Args:
        sequences: Token ids, each with its start and end token.
        vocabulary_size: V.
        order: How many tokens the longest have, at least 2.

    Returns:
        A level for each length of a context, 1 to `order - 1`.
    """
    tokens = np.concatenate([np.asarray(ids, "int64") for ids in sequences])
    lengths = np.array([len(ids) for ids in sequences])
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.flatnonzero(np.arange(len(tokens)) > begins)  # of all but the start tokens
    levels: list[Level] = []
    nodes = np.zeros(len(places), "int64")
    for size in range(1, order):
        inside = places - size >= begins[places]
        places, nodes = places[inside], nodes[inside]
        keys, nodes = np.unique(
            nodes * vocabulary_size + tokens[places - size], return_inverse=True
        )
        levels.append(_level(keys, nodes, tokens[places], vocabulary_size))
    return levels


def _level(keys: np.ndarray, nodes: np.ndarray, followers: np.ndarray, size: int) -> Level:
    """Return a level from the node of each place and the token that follows there."""
    pairs, counts = np.unique(nodes * size + followers, return_counts=True)
    nodes, tokens = pairs // size, pairs % size
    totals = np.bincount(nodes, counts, len(keys))
    kinds = np.bincount(nodes, minlength=len(keys))
    order = np.lexsort((tokens, -counts, nodes))
    ranks = np.arange(len(nodes)) - np.repeat(np.cumsum(kinds) - kinds, kinds)
    kept = order[ranks < MOST_CONTINUATIONS]
    ends = np.cumsum(np.minimum(kinds, MOST_CONTINUATIONS))
    return Level(
        keys,
        np.concatenate([[0], ends]).astype("int64"),
        tokens[kept].astype("int32"),
        counts[kept].astype("int32"),
        totals.astype("int32"),
        kinds.astype("int32"),
    )


def contexts(
    levels: Sequence[Level], output_ids: Sequence[int], vocabulary_size: int
) -> Iterator[tuple[Level, int]]:
    """Yield the levels in which the last tokens of a sequence are a known context, and its node there."""
    node = 0
    for size, level in enumerate(levels, 1):
        # A token that the text does not know would be taken for one of the next node.
        if size > len(output_ids) or output_ids[-size] >= vocabulary_size:
            return
        key = node * vocabulary_size + output_ids[-size]
        node = int(level.keys.searchsorted(key))
        if node == len(level.keys) or level.keys[node] != key:
            return
        yield level, node


def continuations(
    levels: Sequence[Level], output_ids: Sequence[int], vocabulary_size: int
) -> tuple[dict[int, float], float]:
    """Return how likely tokens are to follow a sequence, by Witten and Bell's back-off.

    A context that was followed by c tokens of k kinds is believed c / (c + k); the next shorter one gets the
    rest.

    Returns:
        The probabilities of what was seen behind its last tokens, and what is left for any other token.
    """
    found: dict[int, float] = {}
    left = 1.0
    for level, node in reversed(list(contexts(levels, output_ids, vocabulary_size))):
        begin, end = level.starts[node], level.starts[node + 1]
        total, kinds = int(level.totals[node]), int(level.kinds[node])
        share = left / (total + kinds)
        tokens, counts = level.tokens[begin:end].tolist(), level.counts[begin:end].tolist()
        for token, count in zip(tokens, counts, strict=True):
            found[token] = found.get(token, 0.0) + share * count
        left = share * kinds
    return found, left
