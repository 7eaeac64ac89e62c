"""Inference on JAX: a program for each number of sentences and length of source, state donated."""

from __future__ import annotations

import copy
import functools
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from keras_attention.engine.forward import Operations, decode, encode


class JaxDecoder:
    """Decodes with a model; what `start` returns is a `decoding.shared_search.Decoder`.

    As sentences are dropped, their number is rounded up to 1, 4, 16, 64, ..., so that few programs are
    compiled.

    Args:
        form: The model's `InferenceForm`.
        precision: `"float32"`, `"bfloat16"` or `"float16"`.
    """

    fixed_shapes = True
    keep_copies = True
    _memory: Any
    _memory_bias: Any
    _buffers: Any
    _target_positions: Any

    def __init__(self, form: Any, precision: str):
        self._form = form
        self._operations = Operations(form.sizes, precision)
        self.masked = self._operations.masked
        self._weights: Any = None
        self._known: set[tuple[int, int]] = set()
        self._prepare = jax.jit(self._prepared)
        self._encode = jax.jit(functools.partial(encode, self._operations))
        self._step = jax.jit(self._step_program, static_argnums=0, donate_argnums=5)
        self._select = jax.jit(lambda state, rows: jax.tree.map(lambda part: part[rows], state))

    def seen(self) -> Any:
        """What is equal as long as the model's weights are."""
        return [_Same(weight.value) for weight in self._form.model.weights]

    def is_on_cpu(self) -> bool:
        return jax.default_backend() == "cpu"

    def read_weights(self) -> None:
        self._weights = self._prepare([weight.value for weight in self._form.model.weights])
        self._positions: dict[tuple[str, int], Any] = {}

    def _prepared(self, values: list[Any]) -> Any:
        mapping = list(zip(self._form.model.weights, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return self._operations.prepared(self._form.weights())

    def needs_compiling(self, rows: int, length: int) -> bool:
        return (rows, length) not in self._known

    def fitting_rows(self, number: int) -> int:
        size = 1
        while size < number:
            size *= 4
        return size

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> JaxDecoder:
        """Reads the source ids (B, S)."""
        rows, length = token_ids.shape
        self._known.add((rows, length))
        search = copy.copy(self)
        search._memory, search._memory_bias = self._encode(
            self._weights, token_ids, self._table("encoder", length)
        )
        sizes, dtype = self._form.sizes, self._operations.dtype
        shape = (rows, sizes.num_heads, max_length * beam_size)
        search._buffers = [
            (jnp.zeros((*shape, sizes.key_dim), dtype), jnp.zeros((*shape, sizes.value_dim), dtype))
            for _ in search._memory
        ]
        search._target_positions = self._table("decoder", max_length)
        return search

    def step(
        self, token_ids: np.ndarray, index: int, start: int, history_bias: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        shape = (*token_ids.shape, -1)
        (scores, ids), self._buffers = self._step(
            min(width, self._form.sizes.vocabulary_size),
            self._weights,
            token_ids,
            np.int32(index),
            np.int32(start),
            self._buffers,
            history_bias[:, None],
            self._target_positions,
            self._memory,
            self._memory_bias,
        )
        return np.asarray(scores).reshape(shape), np.asarray(ids).reshape(shape)

    def _step_program(
        self, width, weights, token_ids, index, start, buffers, bias, positions, memory, memory_bias
    ):
        position = jax.lax.dynamic_slice_in_dim(positions, index, 1)
        hidden, buffers = decode(
            self._operations,
            weights,
            token_ids,
            position,
            start,
            bias,
            buffers,
            memory,
            memory_bias,
        )
        logits = self._operations.scores(hidden, weights)
        return self._operations.best(logits, width), buffers

    def keep(self, rows: np.ndarray) -> None:
        state = (self._memory, self._memory_bias, self._buffers)
        self._memory, self._memory_bias, self._buffers = self._select(state, rows)

    def _table(self, kind: str, length: int) -> Any:
        if (kind, length) not in self._positions:
            self._positions[kind, length] = jnp.asarray(self._form.positions(kind, length))
        return self._positions[kind, length]


class _Same:
    """An array that equals itself alone: JAX's never change, a new weight is a new array."""

    def __init__(self, array: Any):
        self._array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._array is other._array
