"""What an engine leaves to the backend: tokens chosen between its steps, by a constraint or at random.

Shape letters: B sentences, W beams, C continuations of a beam, L longest hypothesis, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.decoding.hypotheses import Continuations, SearchRules
from keras_attention.decoding.plain_search import Constraint, continuations, reorder
from keras_attention.ops.compile import compile_without_weights


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
