"""Inference on TensorFlow: one program for the encoder and one for a step, whatever the shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attention.engine.base import State, SteppingEngine
from keras_attention.engine.forward import Step, decode, encode
from keras_attention.engine.operations import Operations, watched_weights
from keras_attention.spec import TransformerSpec
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


class TensorFlowEngine(SteppingEngine):
    """Runs a spec on TensorFlow, in `"float32"`, `"bfloat16"` or `"float16"`."""

    name = "tensorflow"

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision)
        self.operations = TensorFlowOperations(spec, precision)
        self._weights: Any = None
        self._assign_weights = tf.function(self._assign, autograph=False)
        self._encode: Any = None
        self._steps: dict[tuple[int, int | None], Any] = {}

    def read_weights(self) -> None:
        if self._weights is None:
            self._weights = keras.tree.map_structure(
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

        keras.tree.map_structure(assign, self._weights, self.operations.prepare(self.spec))

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return self._encode is None

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> TensorFlowState:
        if self._encode is None:
            self._encode = self._encode_program()
        *memory, bias = self._encode(
            tf.constant(token_ids), self.positions("encoder", token_ids.shape[1])
        )
        positions = self.positions("decoder", max_length)
        return TensorFlowState(self, memory, bias, positions, beam_size)

    def as_tensor(self, array: np.ndarray) -> Any:
        return tf.constant(array)

    def step_program(self, beam_size: int, width: int | None) -> Any:
        """Return the compiled step for beams of this size."""
        if (beam_size, width) not in self._steps:
            self._steps[beam_size, width] = self._compiled_step(beam_size, width)
        return self._steps[beam_size, width]

    def _encode_program(self) -> Any:
        def run(token_ids: Any, positions: Any) -> Any:
            memory, bias = encode(self.operations, self._weights, token_ids, positions)
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
                self._weights,
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


class TensorFlowState(State):
    """One search of a `TensorFlowEngine`; keys and values are (N, B, P, d)."""

    def __init__(
        self,
        engine: TensorFlowEngine,
        memory: list[Any],
        memory_bias: Any,
        positions: Any,
        beam_size: int,
    ):
        rows, cells = memory_bias.shape[0], engine.cells
        super().__init__(engine, rows, beam_size)
        self.masked = engine.operations.masked
        self._memory = memory  # keys and values of the first block, of the second, ..
        self._memory_bias = memory_bias
        self._buffers = [part[:, :, :0] for i, part in enumerate(memory) if i // 2 not in cells]
        self._states = [tf.zeros((rows, beam_size, engine.spec.hidden_dim))] * len(cells)
        self._positions = positions

    def step(
        self,
        token_ids: np.ndarray,
        index: int,
        start: int,
        history_bias: np.ndarray,
        width: int | None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
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
        shape = (rows, beam_size, -1)
        return scores.numpy().reshape(shape), None if ids is None else ids.numpy().reshape(shape)

    def compact(self, slots: np.ndarray, room: int) -> None:
        self._buffers = [
            tf.pad(
                tf.gather(part, slots[None].repeat(part.shape[0], 0), axis=2, batch_dims=2),
                [(0, 0), (0, 0), (0, room), (0, 0)],
            )
            for part in self._buffers
        ]

    def select_rows(self, rows: np.ndarray) -> None:
        super().select_rows(rows)
        self._memory_bias = tf.gather(self._memory_bias, rows)
        self._memory = [tf.gather(part, rows, axis=1) for part in self._memory]
        self._buffers = [tf.gather(part, rows, axis=1) for part in self._buffers]
        self._states = [tf.gather(part, rows) for part in self._states]


def is_on_cpu(spec: TransformerSpec) -> bool:
    """Whether TensorFlow computes on a CPU."""
    return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))


def watch_weights(spec: TransformerSpec) -> Callable[[], Any]:
    """Return a function whose result stays equal as long as no weight of the spec changes."""

    @tf.function(autograph=False)
    def fingerprints() -> Any:
        # A variable's memory is written in place, so only its numbers tell.
        rows = [tf.reshape(tensor, (1, -1)) for tensor in watched_weights(spec)]
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
