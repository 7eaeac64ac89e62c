"""Inference on JAX: a program for each number of sentences and length of source, state donated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from keras_attention.engine.base import State
from keras_attention.engine.forward import ForwardEngine, ForwardState, Step, decode, encode
from keras_attention.engine.operations import Operations, present_weights, watched_weights
from keras_attention.spec import TransformerSpec
from keras_attention.spec.parts import present_value


class JaxState(ForwardState):
    """One search of a `JaxEngine`, whose buffers have room for all steps from the start."""

    def first_buffers(self, rows: int, beam_size: int, max_length: int) -> list[Any]:
        spec, dtype = self.engine.spec, self.engine.operations.dtype
        shape = (rows, spec.num_heads, max_length * beam_size)
        return [
            (jnp.zeros((rows, beam_size, spec.hidden_dim), "float32"),)
            if i in self.engine.cells
            else tuple(jnp.zeros((*shape, d), dtype) for d in (spec.key_dim, spec.value_dim))
            for i in range(len(self._memory))
        ]

    def step(self, token_ids, index, start, history_bias, width):
        step = Step(token_ids, None, np.int32(start), history_bias[:, None], self.parent_rows())
        found, self._buffers = self.engine.step_program(
            width,
            self.engine.weights,
            step,
            np.int32(index),
            self._positions,
            self._buffers,
            (self._memory, self._memory_bias),
        )
        return self.of_beams(found, token_ids.shape)

    def compact(self, slots: np.ndarray, room: int) -> None:
        raise NotImplementedError("JAX' buffers have room for all steps from the start.")

    def select_rows(self, rows: np.ndarray) -> None:
        State.select_rows(self, rows)
        state = (self._memory, self._memory_bias, self._buffers)
        self._memory, self._memory_bias, self._buffers = self.engine.select(state, rows)

    def padded_batch_size(self, number: int) -> int:
        size = 1
        while size < number:
            size *= 4
        return size


class JaxEngine(ForwardEngine):
    """Runs a spec on JAX, in `"float32"`, `"bfloat16"` or `"float16"`.

    As sentences are dropped, their number is rounded up to 1, 4, 16, 64, ..., so that few programs are
    compiled.
    """

    name = "jax"
    fixed_shapes = True
    kind_of_state = JaxState

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision, Operations(spec, precision))
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

    def encode(self, token_ids: Any, positions: Any) -> tuple[Any, Any]:
        self._known.add(token_ids.shape)
        return self._encode(self.weights, token_ids, positions)

    def as_tensor(self, array: np.ndarray) -> Any:
        return jnp.asarray(array)

    def _step_program(self, width, weights, step, index, positions, buffers, memory):
        step = step._replace(position=jax.lax.dynamic_slice_in_dim(positions, index, 1))
        keys_and_values, bias = memory
        return decode(self.operations, weights, step, buffers, keys_and_values, bias, width)


def is_on_cpu(spec: TransformerSpec) -> bool:
    """Whether JAX computes on a CPU."""
    return jax.default_backend() == "cpu"


def watch_weights(spec: TransformerSpec) -> Callable[[], Any]:
    """Return a function whose result stays equal as long as no weight of the spec changes."""
    weights = watched_weights(spec)
    # Arrays never change, a new weight is a new array; they are kept, so that no other gets an id of theirs.
    return lambda: [(id(value), value) for value in map(present_value, weights)]


ENGINE = JaxEngine
