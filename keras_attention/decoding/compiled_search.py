"""What the backend computes of a search, compiled.

That is all of it, over a model's own `decode_step`; or the choice of tokens between the steps of an engine,
by a constraint or at random.

Shape letters: B sentences, S source length, W beams, L longest output, V vocabulary.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.decoding.hypotheses import (
    RANKS,
    BeamSearchResult,
    Continuations,
    SearchRules,
    result,
)
from keras_attention.decoding.plain_search import (
    Choice,
    Constraint,
    Steps,
    continuations,
    find_hypotheses,
    reorder,
)
from keras_attention.decoding.requests import RequestBatch
from keras_attention.decoding.token_rules import SearchConstraint
from keras_attention.ops.compile import compile_for_inference, compile_without_weights
from keras_attention.ops.dispatch import backend_choice


class CompiledSearch:
    """Searches batches of source ids by `beam_search`, with the model as `Translator` takes it."""

    def __init__(self, model: Any, rules: SearchRules, constraint: SearchConstraint | None = None):
        self._model = model
        self._rules = rules
        self._constraint = constraint
        self._compiled: set[tuple[tuple[int, ...], str]] = set()
        # Two programs: only who wants the n best must pay for the certainty of the others.
        self._programs = {
            stop: compile_for_inference(functools.partial(self._search, stop), model)
            for stop in ("best", "n_best")
        }
        # The longest translation is a function of the shape of a batch, as the program is.
        self._longest: dict[tuple[int, ...], int] = {}

    def needs_compiling(self, shape: tuple[int, ...], stop: str) -> bool:
        """Whether the next search of this shape compiles first."""
        is_compiled = backend_choice("A search", torch=False, default=True)
        return is_compiled and (shape, stop) not in self._compiled

    def __call__(self, batch: RequestBatch, stop: str) -> BeamSearchResult:
        """Search one batch; the result has NumPy arrays."""
        self._compiled.add((batch.token_ids.shape, stop))
        state = {}
        if self._constraint is not None:
            beam_size = self._rules.beam_size
            state = self._constraint.of_batch(batch.requests, batch.limits, beam_size)
        self._longest[batch.token_ids.shape] = batch.longest
        uniforms = () if batch.uniforms is None else batch.uniforms
        found, limits = keras.tree.map_structure(
            ops.convert_to_numpy,
            self._programs[stop](batch.token_ids, batch.limits, state, uniforms),
        )
        return result(found, limits, self._rules, np)

    def _search(
        self, stop: str, encoder_token_ids: Any, max_lengths: Any, state: Any, uniforms: Any
    ) -> Any:
        """Run encoder and beam search on one batch: (B, S) and (B,)."""
        memory = self._model.encode(encoder_token_ids)

        def step(token_ids, index, cache):
            return self._model.decode_step(token_ids, index, memory, cache)

        rows, rules = encoder_token_ids.shape[0], self._rules
        longest = self._longest[tuple(encoder_token_ids.shape)]
        cache = self._model.initial_cache(rows, rules.beam_size, longest)
        constraint = None if self._constraint is None else self._constraint.constraint
        choice = Choice(constraint, state, None if rules.sampling is None else uniforms)
        return find_hypotheses(Steps(step, cache), max_lengths, rules, RANKS[stop], longest, choice)


class ChoicePrograms:
    """What is computed at each step, compiled once for all searches."""

    def __init__(self, rules: SearchRules, constraint: Constraint | None = None):
        advances: Any = getattr(constraint, "advance", None)

        def choose(logits: Any, state: Any, uniforms: Any, index: Any) -> Any:
            return continuations(logits, rules, constraint, state, index, uniforms)

        def advance(state: Any, parents: Any, tokens: Any, index: Any) -> Any:
            return advances(reorder(state, parents), tokens, index)

        self.choose = compile_without_weights(choose)
        self.advance = None if advances is None else compile_without_weights(advance)


class ChosenSteps:
    """The choices of one search.

    `state` has the states of the constraint before the first token, `{}` without one; `uniforms` are random
    numbers, float32 (B, L), or None if the likeliest tokens are chosen.
    """

    def __init__(self, programs: ChoicePrograms, state: Any, uniforms: np.ndarray | None = None):
        self._programs = programs
        self._state = keras.tree.map_structure(ops.convert_to_tensor, state)
        self._uniforms = uniforms

    def best(self, logits: np.ndarray, index: int) -> Continuations:
        """Return each beam's best continuations, or the drawn one, of logits (B, W, V), as NumPy arrays."""
        uniforms = () if self._uniforms is None else self._uniforms[:, index]
        found = self._programs.choose(logits, self._state, uniforms, np.int32(index))
        return Continuations(
            *(None if part is None else ops.convert_to_numpy(part) for part in found)
        )

    def advance(self, parents: np.ndarray, tokens: np.ndarray, index: int) -> None:
        """Go on with the beams `parents` (B, W) and the tokens (B, W) that they get at this position."""
        if self._programs.advance is not None:
            parents, tokens = parents.astype("int32"), tokens.astype("int32")
            self._state = self._programs.advance(self._state, parents, tokens, np.int32(index))

    def select_rows(self, rows: np.ndarray) -> None:
        """Go on with these sentences only."""
        self._state = keras.tree.map_structure(
            lambda part: ops.take(part, rows, axis=0), self._state
        )
        if self._uniforms is not None:
            self._uniforms = self._uniforms[rows]
