"""A constraint in a search that an engine computes: between its steps, on the logits.

Shape letters: B sentences, W beams, C continuations of a beam, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.decoding.hypotheses import NO_HYPOTHESIS, exist
from keras_attention.decoding.plain_search import Constraint, best_tokens, reorder, rescored
from keras_attention.ops.compile import compile_without_weights


class ConstraintPrograms:
    """What a constraint computes at each step, compiled once for all searches.

    Args:
        constraint: The `Constraint`.
        width: The number C of continuations of a beam.
    """

    def __init__(self, constraint: Constraint, width: int):
        def choose(logits: Any, state: Any, index: Any) -> Any:
            allowed = constraint.allowed(state, index)
            logits = rescored(constraint, logits, state, index)
            return best_tokens(logits, min(width, logits.shape[-1]), allowed)

        def advance(state: Any, parents: Any, tokens: Any, index: Any) -> Any:
            return constraint.advance(reorder(state, parents), tokens, index)

        self.choose = compile_without_weights(choose)
        self.advance = compile_without_weights(advance)


class ConstrainedSteps:
    """A constraint's states in one search.

    Args:
        programs: What it computes.
        state: Its states before the first token.
    """

    def __init__(self, programs: ConstraintPrograms, state: Any):
        self._programs = programs
        self._state = keras.tree.map_structure(ops.convert_to_tensor, state)

    def best(self, logits: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the best allowed continuations of each beam.

        Args:
            logits: float32 (B, W, V), the model's.
            index: Their position.

        Returns:
            Log-probabilities, float32, and ids, int32, (B, W, C) each, best first; `-inf` if fewer are
            allowed.
        """
        found = self._programs.choose(logits, self._state, np.int32(index))
        scores, tokens = map(ops.convert_to_numpy, found)
        return np.where(exist(scores), scores, NO_HYPOTHESIS), tokens

    def advance(self, parents: np.ndarray, tokens: np.ndarray, index: int) -> None:
        """Go on with the beams `parents` (B, W) and the tokens (B, W) that they get at this position."""
        parents, tokens = parents.astype("int32"), tokens.astype("int32")
        self._state = self._programs.advance(self._state, parents, tokens, np.int32(index))

    def select_rows(self, rows: np.ndarray) -> None:
        """Go on with these sentences only."""
        self._state = keras.tree.map_structure(
            lambda part: ops.take(part, rows, axis=0), self._state
        )
