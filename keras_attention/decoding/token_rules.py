"""Ready rules for the tokens of a search, and several constraints as one, in `keras.ops`.

Shape letters: B sentences, W beams, L longest hypothesis, V vocabulary, P phrases, M tokens of the longest.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_attention.data.joints import Joints
from keras_attention.decoding.constraints import (
    ForcedPrefix,
    RequiredPhrases,
    TextConstraint,
    check_counts,
    for_each_beam,
    token_at,
)
from keras_attention.decoding.hypotheses import append
from keras_attention.decoding.plain_search import Constraint, goals_of, reached_by, rescored
from keras_attention.decoding.requests import Request
from keras_attention.engine.base import TokenRules

# In the tables of banned phrases: any token.
ANY = -2


class RestrictedTokens:
    """No n-gram twice, no banned sequence of tokens, no end before a least length nor after a greatest."""

    def __init__(self, vocabulary_size: int, end_token_id: int, rules: TokenRules):
        self.vocabulary_size, self.end_token_id = vocabulary_size, end_token_id
        self.ngram, self.min_length, self.max_length, *_ = rules
        banned = np.zeros((0, 1), "int32") if rules.banned is None else rules.banned
        lengths = (banned >= 0).sum(axis=1)
        # What stands before the last token, at the end of its row.
        self._before = np.full((len(banned), banned.shape[1] - 1), ANY, "int32")
        for row, length in enumerate(lengths - 1):
            self._before[row, self._before.shape[1] - length :] = banned[row, :length]
        self._last = banned[np.arange(len(banned)), lengths - 1].astype("int32")

    def start(self, max_lengths: Sequence[int], beam_size: int) -> Any:
        """Return the states for a batch: the hypotheses so far, (B, W, L)."""
        lengths = check_counts("max_lengths", max_lengths)
        size = max(1, int(lengths.max(initial=1)))
        return for_each_beam({"tokens": np.full((len(lengths), size), -1, "int32")}, beam_size)

    def allowed(self, state: Any, index: Any) -> Any:
        tokens, size = state["tokens"], self.vocabulary_size
        # Ids of tokens that may not follow, (B, W, ..); V stands for none.
        wrong = []
        if self.ngram:
            follows = _shifted(tokens, self.ngram - 1)
            is_repeated = follows >= 0
            for i in range(self.ngram - 1):
                last = token_at(tokens, index - self.ngram + 1 + i)
                is_repeated = is_repeated & ops.equal(_shifted(tokens, i), last[..., None])
            wrong.append(ops.where(is_repeated, follows, size))
        if len(self._last):
            is_begun = ops.ones_like(tokens[..., :1], dtype="bool")
            width = self._before.shape[1]
            for i in range(width):
                last = token_at(tokens, index - width + i)[..., None]
                before = ops.convert_to_tensor(self._before[:, i])
                is_begun = is_begun & (ops.equal(last, before) | ops.equal(before, ANY))
            wrong.append(ops.where(is_begun, ops.convert_to_tensor(self._last), size))
        vocabulary = ops.arange(size, dtype="int32")
        is_end = ops.equal(vocabulary, self.end_token_id)
        allowed = ops.logical_not(is_end) | (index >= self.min_length)
        if self.max_length:
            allowed = allowed & (is_end | (index < self.max_length))
        if not wrong:
            return ops.broadcast_to(allowed, (*ops.shape(tokens)[:2], size))
        ids = ops.concatenate(wrong, axis=-1)
        rows, beams, number = ops.shape(ids)
        line = ops.repeat(ops.arange(rows * beams, dtype="int32"), number)
        places = ops.stack([line, ops.reshape(ids, (-1,))], axis=-1)
        marks = ops.scatter_update(
            ops.zeros((rows * beams, size + 1), dtype="int32"),
            places,
            ops.ones_like(line, dtype="int32"),
        )
        return allowed & ops.equal(ops.reshape(marks[:, :size], (rows, beams, size)), 0)

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        return {"tokens": append(state["tokens"], token_ids, index, ops)}


def _shifted(tokens: Any, number: int) -> Any:
    """Return tokens (B, W, L) without the first ones, -1 behind."""
    number = min(number, tokens.shape[-1])
    return ops.pad(tokens[..., number:], ((0, 0), (0, 0), (0, number)), constant_values=-1)


class AllOf:
    """Several constraints at once: allowed is what all of them allow. Its state is a tuple of theirs."""

    def __init__(self, constraints: Sequence[Constraint]):
        self.constraints = tuple(constraints)

    def allowed(self, state: Any, index: Any) -> Any:
        pairs = zip(self.constraints, state, strict=True)
        return functools.reduce(operator.and_, (one.allowed(own, index) for one, own in pairs))

    def rescore(self, logits: Any, state: Any, index: Any) -> Any:
        for one, own in zip(self.constraints, state, strict=True):
            logits = rescored(one, logits, own, index)
        return logits

    def goals(self, state: Any, logits: Any) -> Any:
        pairs = zip(self.constraints, state, strict=True)
        found = [each for one, own in pairs if (each := goals_of(one, own, logits)) is not None]
        return ops.concatenate(found, axis=-1) if found else None

    def reached(self, state: Any, token_ids: Any) -> Any:
        pairs = zip(self.constraints, state, strict=True)
        return sum(reached_by(one, own, token_ids) for one, own in pairs)

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        pairs = zip(self.constraints, state, strict=True)
        return tuple(one.advance(own, token_ids, index) for one, own in pairs)


class SearchConstraint:
    """All that is asked of the hypotheses of a search, as one constraint.

    Phrases must occur; prefixes are what hypotheses begin with, whatever else is asked of them.
    """

    def __init__(
        self,
        model: Any,
        text_constraint: TextConstraint | None,
        rules: TokenRules | None,
        has_phrases: bool,
        has_prefixes: bool,
        joints: Joints | None = None,
    ):
        size = getattr(model, "target_vocabulary_size", model.vocabulary_size)
        # Each part, and what makes its states from requests, limits and beam size.
        parts: list[tuple[Constraint, Callable[..., Any]]] = []
        if text_constraint is not None:
            given = text_constraint
            parts.append((given.constraint, _starting(given.of_batch, lambda one: one.text)))
        if rules is not None:
            restricted = RestrictedTokens(size, model.end_token_id, rules)
            parts.append((restricted, lambda requests, *sizes: restricted.start(*sizes)))
        if has_phrases:
            required = RequiredPhrases(size, model.end_token_id, joints)
            parts.append((required, _starting(required.start, lambda one: one.phrases)))
        self._starts = [start for _, start in parts]
        self.constraint: Constraint = AllOf([part for part, _ in parts])
        self._prefix = ForcedPrefix(size, self.constraint if parts else None)
        self._has_prefixes = has_prefixes
        if has_prefixes:
            self.constraint = self._prefix

    def of_batch(self, requests: Sequence[Request], limits: np.ndarray, beam_size: int) -> Any:
        """Return the states for a batch, which may have more rows than requests."""
        sizes: list[int] = np.asarray(limits).tolist()
        rows = [*requests, *[Request("", ())] * (len(sizes) - len(requests))]
        states = tuple(start(rows, sizes, beam_size) for start in self._starts)
        if not self._has_prefixes:
            return states
        prefixes = [list(row.prefix) for row in rows]
        return self._prefix.start(prefixes, sizes, beam_size, states or None)


def _starting(start: Callable[..., Any], asked: Callable[[Request], Any]) -> Callable[..., Any]:
    """Return `start` for requests, of each of which it reads a part."""
    return lambda requests, *sizes: start([asked(one) for one in requests], *sizes)
