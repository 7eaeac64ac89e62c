"""Inference on TensorFlow: one program for the encoder and one for a step, whatever the shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attention.engine.base import State
from keras_attention.engine.forward import ForwardEngine, ForwardState, Step, decode, encode
from keras_attention.engine.operations import Operations, watched_weights
from keras_attention.spec import TransformerSpec
from keras_attention.spec.parts import present_value
from keras_attention.utils import forks


class TensorFlowOperations(Operations):
    """`Operations` in TensorFlow's own, for any shapes; heads come before sentences: (N, B, T, d).

    How long a search takes without one, for one sentence and for 32, by `KERAS_BACKEND=tensorflow python
    benchmarks/engine_operations.py tiny`, and `base` (28 November 2026, AVX2, three to five pairs):

        operation            tiny        base
        prepare_softmax  1.01  1.00  1.77  1.32
        norm             1.01  0.98  1.12  0.96
        embed            1.05  1.03  1.07  0.99

    The others are what the layout of the buffers asks for.
    """

    def prepare_softmax(self, table: Any, kernel: Any, bias: Any) -> Any:
        # Without oneDNN, a product with a transposed matrix takes two to eight times as long.
        return super().prepare_softmax(
            table, tf.transpose(table) if kernel is None else kernel, bias
        )

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        # Gathering from the variable itself would make every later read of it a copy.
        rows = tf.gather(tf.convert_to_tensor(table), token_ids)
        is_token = tf.cast(token_ids != self.spec.pad_token_id, rows.dtype)
        scale = tf.cast(self.spec.hidden_dim**0.5, rows.dtype)
        x = rows * (is_token * scale)[..., None] + tf.cast(positions, rows.dtype)
        return tf.reshape(x, (-1, self.spec.hidden_dim))

    def norm(self, x: Any, norm: Any, epsilon: float) -> Any:
        if norm[1] is None:
            return super().norm(x, norm, epsilon)
        dtype, x = x.dtype, tf.cast(x, "float32")
        x -= tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        x *= tf.math.rsqrt(variance + epsilon)
        return tf.cast(x * norm[0] + norm[1], dtype)

    def heads(self, x: Any, num_rows: Any, widths: Sequence[int]) -> list[Any]:
        num_heads = self.spec.num_heads
        parts = tf.split(x, [num_heads * width for width in widths], axis=-1)
        return [
            self._of_sentences(
                tf.transpose(tf.reshape(part, (-1, num_heads, width)), (1, 0, 2)), num_rows
            )
            for part, width in zip(parts, widths, strict=True)
        ]

    def _of_sentences(self, x: Any, num_rows: Any) -> Any:
        """(N, B T, d) to (N, B, T, d)."""
        return tf.reshape(x, (self.spec.num_heads, num_rows, -1, x.shape[-1]))

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        scores = tf.matmul(query, key, transpose_b=True)
        scores += tf.cast(tf.squeeze(bias, 1), scores.dtype)
        weights = tf.cast(tf.nn.softmax(tf.cast(scores, "float32")), scores.dtype)
        outputs = tf.transpose(tf.matmul(weights, value), (1, 2, 0, 3))
        return tf.reshape(outputs, (-1, self.spec.num_heads * self.spec.value_dim))

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        """In place; `start` holds the step's row for each head and sentence, (N B,).

        A slice of a variable, or of a tensor in a loop, TensorFlow would copy as a whole at each step.
        """
        rows = tf.reshape(new, (tf.size(start), -1))
        steps = tf.reshape(buffer, (-1, tf.shape(rows)[1]))
        written = tf.raw_ops.InplaceUpdate(x=steps, i=start, v=rows)
        return tf.reshape(written, tf.shape(buffer))


class TensorFlowState(ForwardState):
    """One search of a `TensorFlowEngine`; keys and values are (N, B, P, d).

    Those of the first block come first, then of the second, .., and of the buffers no cell's.
    """

    def first_buffers(self, rows: int, beam_size: int, max_length: int) -> list[Any]:
        spec, cells = self.engine.spec, self.engine.cells
        self._states = [tf.zeros((rows, beam_size, spec.hidden_dim))] * len(cells)
        return [part[:, :, :0] for i, part in enumerate(self._memory) if i // 2 not in cells]

    def step(self, token_ids, index, start, history_bias, width):
        rows, beam_size = token_ids.shape
        heads, capacity = self.engine.spec.num_heads, history_bias.shape[2]
        firsts = np.arange(0, rows * heads * capacity, capacity) + start
        slots = (firsts // beam_size).astype("int32")
        parents = [] if self.parents is None else [tf.constant(self.parent_rows())]
        scores, ids, *self._states = self.engine.step_program(beam_size, width)(
            tf.constant(token_ids),
            self._positions[index : index + 1],
            tf.constant(slots),
            tf.constant(history_bias),
            self._memory_bias,
            *self._memory,
            *self._buffers,
            *self._states,
            *parents,
        )
        return self.of_beams((scores, ids), token_ids.shape)

    def compact(self, slots: np.ndarray, room: int) -> None:
        self._buffers = [
            tf.pad(
                tf.gather(part, slots[None].repeat(part.shape[0], 0), axis=2, batch_dims=2),
                [(0, 0), (0, 0), (0, room), (0, 0)],
            )
            for part in self._buffers
        ]

    def select_rows(self, rows: np.ndarray) -> None:
        State.select_rows(self, rows)
        self._memory_bias = tf.gather(self._memory_bias, rows)
        self._memory = [tf.gather(part, rows, axis=1) for part in self._memory]
        self._buffers = [tf.gather(part, rows, axis=1) for part in self._buffers]
        self._states = [tf.gather(part, rows) for part in self._states]


class TensorFlowEngine(ForwardEngine):
    """Runs a spec on TensorFlow, in `"float32"`, `"bfloat16"` or `"float16"`."""

    name = "tensorflow"
    kind_of_state = TensorFlowState

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision, TensorFlowOperations(spec, precision))
        self._assign_weights = tf.function(self._assign, autograph=False)
        self.step_program = functools.cache(self._compiled_step)

    def read_weights(self) -> None:
        if self.weights is None:
            self.weights = keras.tree.map_structure(
                lambda value: None if value is None else tf.Variable(value, trainable=False),
                self.operations.prepare(self.spec),
            )
        else:
            self._assign_weights()
        self.positions.cache_clear()

    def _assign(self) -> None:
        def assign(variable: Any, value: Any) -> None:
            if variable is not None:
                variable.assign(value)

        keras.tree.map_structure(assign, self.weights, self.operations.prepare(self.spec))

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return "_encode" not in vars(self)

    def encode(self, token_ids: Any, positions: Any) -> tuple[Any, Any]:
        *memory, bias = self._encode(token_ids, positions)
        return memory, bias

    def as_tensor(self, array: np.ndarray) -> Any:
        return tf.constant(array)

    @functools.cached_property
    def _encode(self) -> Any:
        def run(token_ids: Any, positions: Any) -> Any:
            memory, bias = encode(self.operations, self.weights, token_ids, positions)
            return [*keras.tree.flatten(memory), bias]

        return tf.function(run, autograph=False).get_concrete_function(
            tf.TensorSpec((None, None), "int32"),
            tf.TensorSpec((None, self.spec.hidden_dim), "float32"),
        )

    def _compiled_step(self, beam_size: int, width: int | None) -> Any:
        spec, cells = self.spec, self.cells
        number = len(spec.decoder.blocks)
        ends = 2 * number, 4 * number - 2 * len(cells)  # of memory and of buffers

        def run(
            token_ids: Any, position: Any, slots: Any, bias: Any, memory_bias: Any, *state: Any
        ):
            pairs = iter(_pairs(state[ends[0] : ends[1]]))
            states = iter(state[ends[1] :])
            buffers = [(next(states),) if i in cells else next(pairs) for i in range(number)]
            found, new = decode(
                self.operations,
                self.weights,
                Step(token_ids, position, slots, bias[:, None], next(states, None)),
                buffers,
                _pairs(state[: ends[0]]),
                memory_bias,
                width,
            )
            return *found, *(new[i][0] for i in cells)  # the others are written in place

        dtype = self.operations.dtype
        key, value = (
            tf.TensorSpec((spec.num_heads, None, None, size), dtype)
            for size in (spec.key_dim, spec.value_dim)
        )
        state = tf.TensorSpec((None, beam_size, spec.hidden_dim), "float32")
        return tf.function(run, autograph=False).get_concrete_function(
            tf.TensorSpec((None, beam_size), "int32"),
            tf.TensorSpec((None, spec.hidden_dim), "float32"),
            tf.TensorSpec((None,), "int32"),
            tf.TensorSpec((None, beam_size, None), "float32"),
            tf.TensorSpec((None, 1, 1, None), dtype),
            *[key, value] * (ends[1] // 2),
            *[state] * len(cells),
            *[tf.TensorSpec((None,), "int32")] * bool(cells),
        )


def is_on_cpu(spec: TransformerSpec) -> bool:
    """Whether TensorFlow computes on a CPU."""
    return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


def watch_weights(spec: TransformerSpec) -> Callable[[], Any]:
    """Return a function whose result stays equal as long as no weight of the spec changes."""

    @tf.function(autograph=False)
    def fingerprints() -> Any:
        # A variable's memory is written in place, so only its numbers tell.
        rows = [tf.reshape(present_value(weight), (1, -1)) for weight in watched_weights(spec)]
        return tf.concat(
            [tf.raw_ops.Fingerprint(data=row, method="farmhash64") for row in rows], axis=0
        )

    def version() -> Any:
        # In a forked process, a program would wait for ever for threads that only the parent has.
        found = fingerprints.python_function() if forks.is_forked else fingerprints()
        return found.numpy().tobytes()

    return version


def _pairs(parts: Any) -> list[tuple[Any, Any]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


ENGINE = TensorFlowEngine
