"""Several models that translate as one: the score of a token is the mean of its log-probabilities.

The mean is not normalised again, so a score is what the models give a translation on average.

Shape letters: B sentences, W beams, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attention.decoding.requests import VOCABULARY
from keras_attention.engine.base import State, SteppingEngine
from keras_attention.engine.select import EngineChoice, EngineSelector
from keras_attention.utils.checks import counted


class Ensemble:
    """Models with one vocabulary, two or more, as the plain search takes a model.

    Raises:
        ValueError: If there are fewer, or they have different vocabularies.
    """

    name = "ensemble"

    def __init__(self, models: Sequence[Any]):
        self.models = tuple(models)
        if len(models) < 2:
            raise ValueError(
                f"`model` must be a model, or several. Received: {len(models)} in a list"
            )
        for name in VOCABULARY:
            values = [getattr(one, name, getattr(one, "vocabulary_size", None)) for one in models]
            for number, value in enumerate(values, start=1):
                if value != values[0] or value is None:
                    raise ValueError(
                        "`model`: the models of an ensemble must have one vocabulary. Received: model 1 "
                        f"with {name} {values[0]}, model {number} with {value}"
                    )
            setattr(self, name, values[0])
        limits = [one.max_length for one in models if one.max_length is not None]
        self.max_length = min(limits, default=None)

    @property
    def built(self) -> bool:
        return all(model.built for model in self.models)

    @property
    def weights(self) -> list[Any]:
        return [weight for model in self.models for weight in model.weights]

    def encode(self, encoder_token_ids: Any) -> tuple[Any, ...]:
        return tuple(model.encode(encoder_token_ids) for model in self.models)

    def initial_cache(self, *sizes: int) -> tuple[Any, ...]:
        return tuple(model.initial_cache(*sizes) for model in self.models)

    def decode_step(
        self, token_ids: Any, index: Any, memory: tuple[Any, ...], cache: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the mean log-probabilities (B, W, V) of the next token, and the new caches."""
        from keras import ops

        caches, total = [], 0.0
        for model, own, kept in zip(self.models, memory, cache, strict=True):
            logits, new = model.decode_step(token_ids, index, own, kept)
            total = total + ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
            caches.append(new)
        return total / len(self.models), tuple(caches)


class EnsembleSelector:
    """The engines of an ensemble, as an `EngineSelector` for each model."""

    needs_compiling = False

    def __init__(self, selectors: Sequence[EngineSelector]):
        self._selectors = selectors
        self.choice = selectors[0].choice
        self.fixed_shapes = selectors[0].fixed_shapes

    def choice_for(self, rows: int) -> EngineChoice:
        choice = self._selectors[0].choice_for(rows)
        others = counted(len(self._selectors) - 1, "more model")
        return choice._replace(reason=f"{choice.reason} The same holds for {others}.")

    def engine(self, rows: float = math.inf) -> EnsembleEngine:
        return EnsembleEngine([selector.engine(rows) for selector in self._selectors])


class EnsembleEngine(SteppingEngine):
    """Engines of one kind that step together, one for each model."""

    def __init__(self, engines: Sequence[Any]):
        self._engines = engines
        self.name, self.fixed_shapes = engines[0].name, engines[0].fixed_shapes

    def read_weights(self) -> None:
        for engine in self._engines:
            engine.read_weights()

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return any(engine.needs_compiling(batch_size, length) for engine in self._engines)

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> EnsembleState:
        states = [engine.start(token_ids, beam_size, max_length) for engine in self._engines]
        return EnsembleState(self, states)


class EnsembleState(State):
    """One search of an `EnsembleEngine`; it gives mean log-probabilities in place of logits."""

    def __init__(self, engine: EnsembleEngine, states: Sequence[State]):
        self.engine, self._states = engine, states
        self.masked = max(state.masked for state in states)

    def reorder(self, parents: np.ndarray) -> None:
        for state in self._states:
            state.reorder(parents)

    def step(self, token_ids, index, start, history_bias, width):
        total: Any = 0.0
        for state in self._states:
            logits, _ = state.step(token_ids, index, start, history_bias, None)
            logits = logits - logits.max(axis=-1, keepdims=True)
            total = total + logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return total / len(self._states), None

    def compact(self, slots: np.ndarray, room: int) -> None:
        for state in self._states:
            state.compact(slots, room)

    def select_rows(self, rows: np.ndarray) -> None:
        for state in self._states:
            state.select_rows(rows)

    def padded_batch_size(self, number: int) -> int:
        return self._states[0].padded_batch_size(number)
