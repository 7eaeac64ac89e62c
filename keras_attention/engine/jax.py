"""Inference on JAX: a program for each number of sentences and length of source, state donated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from keras_attention.engine.base import State, SteppingEngine
from keras_attention.engine.forward import Step, decode, encode
from keras_attention.engine.operations import Operations, present_weights, watched_weights
from keras_attention.spec import TransformerSpec


class JaxEngine(SteppingEngine):
    """Runs a spec on JAX, in `"float32"`, `"bfloat16"` or `"float16"`.

    As sentences are dropped, their number is rounded up to 1, 4, 16, 64, ..., so that few programs are
    compiled.
    """

    name = "jax"
    fixed_shapes = True

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision)
        self.operations = Operations(spec, precision)
        self.weights: Any = None
        self._known: set[tuple[int, int]] = set()
        self._prepare = jax.jit(self._prepared)
        self._encode = jax.jit(functools.partial(encode, self.operations))
        self.step_program = jax.jit(self._step_program, static_argnums=0, donate_argnums=5)
        self.select = jax.jit(lambda state, rows: jax.tree.map(lambda part: part[rows], state))

    def read_weights(self) -> None:
        self.weights = self._prepare(present_weights(self.spec))
        self.positions.cache_clear()

    def _prepared(self, values: list[Any]) -> Any:
        present = iter(values)
        return self.operations.prepare(self.spec.map_weights(lambda weight: next(present)))

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return (batch_size, length) not in self._known

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> JaxState:
        self._known.add(token_ids.shape)
        positions = self.positions("encoder", token_ids.shape[1])
        memory, bias = self._encode(self.weights, token_ids, positions)
        return JaxState(self, memory, bias, self.positions("decoder", max_length), beam_size)

    def as_tensor(self, array: np.ndarray) -> Any:
        return jnp.asarray(array)

    def _step_program(self, width, weights, step, index, positions, buffers, memory):
        step = step._replace(position=jax.lax.dynamic_slice_in_dim(positions, index, 1))
        keys_and_values, bias = memory
        return decode(self.operations, weights, step, buffers, keys_and_values, bias, width)


class JaxState(State):
    """One search of a `JaxEngine`; keys and values are (B, N, P, d), of all steps from the start."""

    def __init__(
        self, engine: JaxEngine, memory: Any, memory_bias: Any, positions: Any, beam_size: int
    ):
        super().__init__(engine, len(memory_bias), beam_size)
        self.masked = engine.operations.masked
        self._memory, self._memory_bias = memory, memory_bias
        spec, dtype = engine.spec, engine.operations.dtype
        shape = (len(memory_bias), spec.num_heads, len(positions) * beam_size)
        state = (len(memory_bias), beam_size, spec.hidden_dim)
        self._buffers: Any = [
            (jnp.zeros(state, "float32"),)
            if i in engine.cells
            else tuple(jnp.zeros((*shape, d), dtype) for d in (spec.key_dim, spec.value_dim))
            for i in range(len(memory))
        ]
        self._positions = positions

    def step(
        self,
        token_ids: np.ndarray,
        index: int,
        start: int,
        history_bias: np.ndarray,
        width: int | None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        shape = (*token_ids.shape, -1)
        parents = self.parent_rows()
        step = Step(token_ids, None, np.int32(start), history_bias[:, None], parents)
        (scores, ids), self._buffers = self.engine.step_program(
            width,
            self.engine.weights,
            step,
            np.int32(index),
            self._positions,
            self._buffers,
            (self._memory, self._memory_bias),
        )
        found = np.asarray(scores).reshape(shape)
        return found, None if ids is None else np.asarray(ids).reshape(shape)

    def compact(self, slots: np.ndarray, room: int) -> None:
        raise NotImplementedError("JAX' buffers have room for all steps from the start.")

    def select_rows(self, rows: np.ndarray) -> None:
        super().select_rows(rows)
        state = (self._memory, self._memory_bias, self._buffers)
        self._memory, self._memory_bias, self._buffers = self.engine.select(state, rows)

    def padded_batch_size(self, number: int) -> int:
        size = 1
        while size < number:
            size *= 4
        return size


def is_on_cpu(spec: TransformerSpec) -> bool:
    """Whether JAX computes on a CPU."""
    return jax.default_backend() == "cpu"


def watch_weights(spec: TransformerSpec) -> Callable[[], Any]:
    """Return a function whose result stays equal as long as no weight of the spec changes."""
    return lambda: [_Same(value) for value in watched_weights(spec)]


class _Same:
    """An array that equals itself alone: JAX's never change, a new weight is a new array."""

    def __init__(self, array: Any):
        self._array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._array is other._array


ENGINE = JaxEngine
