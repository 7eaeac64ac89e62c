"""Inference on TensorFlow: one program for the encoder and one for a step, whatever the shapes."""

from __future__ import annotations

import copy
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attention.kernels.inference import Operations, decode, encode

# Positions by which buffers grow.
BLOCK = 16


class TensorFlowOperations(Operations):
    """`Operations` in TensorFlow's own, for any shapes."""

    def prepared_table(self, table: Any) -> Any:
        # Without oneDNN, a product with a transposed matrix takes two to eight times as long.
        rows = tf.cast(table, self.dtype)
        return {"rows": rows, "columns": tf.transpose(rows)}

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        # Gathering from the variable itself would make every later read of it a copy.
        rows = tf.gather(tf.convert_to_tensor(table["rows"]), token_ids)
        is_token = tf.cast(token_ids != self.sizes.pad_token_id, rows.dtype)
        scale = tf.cast(self.sizes.hidden_dim**0.5, rows.dtype)
        x = rows * (is_token * scale)[..., None] + tf.cast(positions, rows.dtype)
        return tf.reshape(x, (-1, self.sizes.hidden_dim))

    def tokens(self, token_ids: Any) -> Any:
        return tf.where(tf.reshape(token_ids, (-1,)) != self.sizes.pad_token_id)

    def without_padding(self, x: Any, tokens: Any) -> Any:
        return tf.gather_nd(x, tokens)

    def with_padding(self, x: Any, tokens: Any, number: Any) -> Any:
        shape = (tf.cast(number, "int64"), tf.cast(tf.shape(x)[1], "int64"))
        return tf.ensure_shape(tf.scatter_nd(tokens, x, shape), (None, x.shape[1]))

    def linear(self, x: Any, matrix: Any, activation: Any = None) -> Any:
        outputs = tf.matmul(x, matrix["kernel"])
        if "bias" in matrix:
            outputs = tf.nn.bias_add(outputs, matrix["bias"])
        return outputs if activation is None else activation(outputs)

    def norm(self, x: Any, norm: Any) -> Any:
        dtype, x = x.dtype, tf.cast(x, "float32")
        x -= tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), axis=-1, keepdims=True)
        x *= tf.math.rsqrt(variance + self.sizes.epsilon)
        return tf.cast(x * norm["gamma"] + norm["beta"], dtype)

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), "float32")
        weights = tf.cast(tf.nn.softmax(scores + tf.cast(bias, "float32")), value.dtype)
        outputs = tf.transpose(tf.matmul(weights, value), (0, 2, 1, 3))
        return tf.reshape(outputs, (-1, self.sizes.num_heads * self.sizes.value_dim))

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        """In place; `start` holds the step's row for each sentence and head, (B N,).

        A slice of a variable, or of a tensor in a loop, TensorFlow would copy as a whole at each step.
        """
        rows = tf.reshape(new, (tf.size(start), -1))
        steps = tf.reshape(buffer, (-1, tf.shape(rows)[1]))
        written = tf.raw_ops.InplaceUpdate(x=steps, i=start, v=rows)
        return tf.reshape(written, tf.shape(buffer))

    def logits(self, x: Any, table: Any) -> Any:
        return tf.matmul(x, table["columns"])


class TensorFlowDecoder:
    """Decodes with a model; what `start` returns is a `decoding.shared_search.Decoder`.

    Args:
        form: The model's `InferenceForm`.
        precision: `"float32"`, `"bfloat16"` or `"float16"`.
    """

    fixed_shapes = False
    _memory: list[Any]  # keys and values of the first block, of the second, ..
    _memory_bias: Any
    _buffers: list[Any]
    _target_positions: Any

    def __init__(self, form: Any, precision: str):
        self._form = form
        self._operations = TensorFlowOperations(form.sizes, precision)
        self.masked = self._operations.masked
        self._weights: Any = None
        self._positions: dict[tuple[str, int], Any] = {}
        self._refresh = tf.function(self._read_weights)
        self._encode: Any = None
        self._steps: dict[int, Any] = {}

    def refresh(self) -> None:
        """Reads the model's present weights."""
        if self._weights is None:
            self._weights = keras.tree.map_structure(
                lambda value: tf.Variable(value, trainable=False),
                self._operations.prepared(self._form.weights()),
            )
        else:
            self._refresh()
        self._positions.clear()

    def _read_weights(self) -> None:
        keras.tree.map_structure(
            lambda variable, value: variable.assign(value),
            self._weights,
            self._operations.prepared(self._form.weights()),
        )

    def needs_compiling(self, rows: int, length: int) -> bool:
        return self._encode is None

    def fitting_rows(self, number: int) -> int:
        return number

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> TensorFlowDecoder:
        """Reads the source ids (B, S)."""
        rows, length = token_ids.shape
        if self._encode is None:
            self._encode = self._encode_program()
        search = copy.copy(self)
        *search._memory, search._memory_bias = self._encode(
            tf.constant(token_ids), self._table("encoder", length)
        )
        search._buffers = [
            tf.zeros((rows, part.shape[1], 0, part.shape[3]), part.dtype) for part in search._memory
        ]
        search._target_positions = self._table("decoder", max_length)
        return search

    def step(
        self, token_ids: np.ndarray, index: int, history_bias: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, beam_size = token_ids.shape
        capacity = self._buffers[0].shape[2] // beam_size
        if index == capacity:
            self._buffers = [_grown(part, BLOCK * beam_size) for part in self._buffers]
            capacity += BLOCK
        if beam_size not in self._steps:
            self._steps[beam_size] = self._step_program(beam_size, width)
        heads = self._form.sizes.num_heads
        scores, ids = self._steps[beam_size](
            tf.constant(token_ids),
            self._target_positions[index : index + 1],
            tf.constant(np.arange(index, rows * heads * capacity, capacity, dtype="int32")),
            tf.constant(_fitted(history_bias, capacity * beam_size, self.masked)),
            self._memory_bias,
            *self._memory,
            *self._buffers,
        )
        shape = (rows, beam_size, -1)
        return scores.numpy().reshape(shape), ids.numpy().reshape(shape)

    def keep(self, rows: np.ndarray) -> None:
        self._memory_bias = tf.gather(self._memory_bias, rows)
        self._memory = [tf.gather(part, rows) for part in self._memory]
        self._buffers = [tf.gather(part, rows) for part in self._buffers]

    def _encode_program(self) -> Any:
        def run(token_ids: Any, positions: Any) -> Any:
            memory, bias = encode(self._operations, self._weights, token_ids, positions)
            return [*keras.tree.flatten(memory), bias]

        return tf.function(run).get_concrete_function(
            tf.TensorSpec((None, None), "int32"),
            tf.TensorSpec((None, self._form.sizes.hidden_dim), "float32"),
        )

    def _step_program(self, beam_size: int, width: int) -> Any:
        sizes = self._form.sizes
        number = len(self._memory)

        def run(
            token_ids: Any, position: Any, places: Any, bias: Any, memory_bias: Any, *state: Any
        ):
            hidden, _ = decode(
                self._operations,
                self._weights,
                token_ids,
                position,
                places,
                bias[:, None],
                _pairs(state[number:]),
                _pairs(state[:number]),
                memory_bias,
            )
            logits = self._operations.scores(hidden, self._weights)
            return self._operations.best(logits, min(width, sizes.vocabulary_size))

        dtype = self._operations.dtype
        key, value = (
            tf.TensorSpec((None, sizes.num_heads, None, size), dtype)
            for size in (sizes.key_dim, sizes.value_dim)
        )
        return tf.function(run).get_concrete_function(
            tf.TensorSpec((None, beam_size), "int32"),
            tf.TensorSpec((1, sizes.hidden_dim), "float32"),
            tf.TensorSpec((None,), "int32"),
            tf.TensorSpec((None, beam_size, None), "float32"),
            tf.TensorSpec((None, 1, 1, None), dtype),
            *[key, value] * number,
        )

    def _table(self, kind: str, length: int) -> Any:
        if (kind, length) not in self._positions:
            self._positions[kind, length] = tf.constant(self._form.positions(kind, length))
        return self._positions[kind, length]


def _pairs(parts: Any) -> list[tuple[Any, Any]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


def _grown(buffer: Any, positions: int) -> Any:
    return tf.pad(buffer, [(0, 0), (0, 0), (0, positions), (0, 0)])


def _fitted(history_bias: np.ndarray, positions: int, masked: float) -> np.ndarray:
    """The bias of the first `positions`; buffers may be longer than any hypothesis."""
    missing = max(0, positions - history_bias.shape[-1])
    padding = [(0, 0), (0, 0), (0, missing)]
    return np.pad(history_bias[:, :, :positions], padding, constant_values=masked)
