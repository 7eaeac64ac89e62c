"""Inference on TensorFlow: one program for the encoder and one for a step, whatever the shapes."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attention.engine.forward import Operations, Weights, decode, encode
from keras_attention.ops.top_k import top_k


class TensorFlowOperations(Operations):
    """`Operations` in TensorFlow's own, for any shapes; heads come before sentences: (N, B, T, d)."""

    def prepared_table(self, table: Any) -> Any:
        # Without oneDNN, a product with a transposed matrix takes two to eight times as long.
        rows = tf.cast(table, self.dtype)
        return {"rows": rows, "columns": tf.transpose(rows)}

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        # Gathering from the variable itself would make every later read of it a copy.
        rows = tf.gather(tf.convert_to_tensor(self.table_rows(table)), token_ids)
        is_token = tf.cast(token_ids != self.sizes.pad_token_id, rows.dtype)
        scale = tf.cast(self.sizes.hidden_dim**0.5, rows.dtype)
        x = rows * (is_token * scale)[..., None] + tf.cast(positions, rows.dtype)
        return tf.reshape(x, (-1, self.sizes.hidden_dim))

    def tokens(self, token_ids: Any) -> Any:
        is_token = tf.reshape(token_ids, (-1,)) != self.sizes.pad_token_id
        # Of a token its place among the tokens, of padding that of the token before it.
        return tf.where(is_token)[:, 0], tf.maximum(tf.cumsum(tf.cast(is_token, "int32")) - 1, 0)

    def without_padding(self, x: Any, tokens: Any) -> Any:
        return tf.gather(x, tokens[0])

    def with_padding(self, x: Any, tokens: Any) -> Any:
        return tf.gather(x, tokens[1])

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

    def heads(self, x: Any, num_rows: Any, widths: Sequence[int]) -> list[Any]:
        num_heads = self.sizes.num_heads
        parts = tf.split(x, [num_heads * width for width in widths], axis=-1)
        return [
            self._of_sentences(
                tf.transpose(tf.reshape(part, (-1, num_heads, width)), (1, 0, 2)), num_rows
            )
            for part, width in zip(parts, widths, strict=True)
        ]

    def _of_sentences(self, x: Any, num_rows: Any) -> Any:
        """(N, B T, d) to (N, B, T, d)."""
        return tf.reshape(x, (self.sizes.num_heads, num_rows, -1, x.shape[-1]))

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        scores = tf.matmul(query, key, transpose_b=True)
        weights = self.softmax(scores + tf.cast(tf.squeeze(bias, 1), scores.dtype))
        outputs = tf.transpose(tf.matmul(weights, value), (1, 2, 0, 3))
        return tf.reshape(outputs, (-1, self.sizes.num_heads * self.sizes.value_dim))

    def softmax(self, scores: Any) -> Any:
        return tf.cast(tf.nn.softmax(tf.cast(scores, "float32")), scores.dtype)

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        """In place; `start` holds the step's row for each head and sentence, (N B,).

        A slice of a variable, or of a tensor in a loop, TensorFlow would copy as a whole at each step.
        """
        rows = tf.reshape(new, (tf.size(start), -1))
        steps = tf.reshape(buffer, (-1, tf.shape(rows)[1]))
        written = tf.raw_ops.InplaceUpdate(x=steps, i=start, v=rows)
        return tf.reshape(written, tf.shape(buffer))

    def table_rows(self, table: Any) -> Any:
        return table["rows"]

    def logits(self, x: Any, table: Any) -> Any:
        return tf.matmul(x, table["columns"])

    def best(self, logits: Any, width: int) -> tuple[Any, Any]:
        logits = tf.cast(logits, "float32")
        values, ids = top_k(logits, width)
        # One pass of the softmax in place of the four of a log-sum-exp.
        likeliest = tf.gather(tf.nn.softmax(logits), ids[:, :1], batch_dims=1)
        return values - values[:, :1] + tf.math.log(likeliest), ids


class OneDnnOperations(TensorFlowOperations):
    """Weights laid out as oneDNN reads them fastest, most of all for few rows.

    `BatchMatMul` has better products than `MatMul`, also with a batch of one, and best are those with a
    transposed matrix. The heads of a projection are a batch of products, and so come apart.
    """

    def prepared_matrix(self, matrix: Weights) -> Any:
        prepared = super().prepared_matrix(matrix)
        return {**prepared, "kernel": tf.transpose(prepared["kernel"])}

    def prepared_table(self, table: Any) -> Any:
        return {"kernel": tf.cast(table, self.dtype)}

    def prepared_projection(self, matrix: Weights, widths: Sequence[int]) -> Any:
        """Kernels (H, D, d), of all heads if their widths are equal, else of each part."""
        matrix = super().prepared_matrix(matrix)
        number = self.sizes.num_heads
        if len(set(widths)) == 1:
            number, widths = number * len(widths), widths[:1]
        sizes = [number * width for width in widths]
        parts = []
        for size, part in zip(sizes, tf.split(matrix["kernel"], sizes, axis=1), strict=True):
            heads = tf.reshape(part, (part.shape[0], number, size // number))
            parts.append({"kernel": tf.transpose(heads, (1, 0, 2))})
        if "bias" in matrix:
            for size, part, bias in zip(sizes, parts, tf.split(matrix["bias"], sizes), strict=True):
                part["bias"] = tf.reshape(bias, (number, 1, size // number))
        return parts

    def linear(self, x: Any, matrix: Any, activation: Any = None) -> Any:
        kernel = tf.expand_dims(matrix["kernel"], 0)
        outputs = tf.squeeze(tf.matmul(tf.expand_dims(x, 0), kernel, transpose_b=True), 0)
        if "bias" in matrix:
            outputs += matrix["bias"]
        return outputs if activation is None else activation(outputs)

    def softmax(self, scores: Any) -> Any:
        return tf.nn.softmax(scores)  # oneDNN's computes in float32

    def table_rows(self, table: Any) -> Any:
        return table["kernel"]

    def logits(self, x: Any, table: Any) -> Any:
        return self.linear(x, table)

    def project(
        self, x: Any, block: Weights, name: str, num_rows: Any, tokens: Any = None
    ) -> list[Any]:
        heads = []
        for part in block[name]:
            outputs = tf.matmul(tf.expand_dims(x, 0), part["kernel"])
            if "bias" in part:
                outputs += part["bias"]
            if tokens is not None:
                outputs = tf.gather(outputs, tokens[1], axis=1)
            heads += tf.split(outputs, outputs.shape[0] // self.sizes.num_heads)
        return [self._of_sentences(part, num_rows) for part in heads]


def onednn_is_on(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether TensorFlow computes with oneDNN: if told so, else on CPUs that have these features."""
    wanted = os.environ.get("TF_ENABLE_ONEDNN_OPTS")
    if wanted is not None:
        return wanted.lower() in ("1", "true")
    features = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return not features.isdisjoint(flags)


class TensorFlowDecoder:
    """Decodes with a model; what `start` returns is a `decoding.shared_search.Decoder`.

    Args:
        form: The model's `InferenceForm`.
        precision: `"float32"`, `"bfloat16"` or `"float16"`.
    """

    fixed_shapes = False
    keep_copies = True
    _memory: list[Any]  # keys and values of the first block, of the second, ..
    _memory_bias: Any
    _buffers: list[Any]
    _target_positions: Any

    def __init__(self, form: Any, precision: str):
        self._form = form
        operations = OneDnnOperations if onednn_is_on() else TensorFlowOperations
        self._operations = operations(form.sizes, precision)
        self.masked = self._operations.masked
        self._weights: Any = None
        self._positions: dict[tuple[str, int], Any] = {}
        self._assign_weights = tf.function(self._assign)
        self._fingerprints = tf.function(self._read_fingerprints)
        self._encode: Any = None
        self._steps: dict[int, Any] = {}

    def seen(self) -> Any:
        """What is equal as long as the model's weights are."""
        return self._fingerprints().numpy().tobytes()

    def _read_fingerprints(self) -> Any:
        # A variable's memory is written in place, so only its numbers tell.
        weights = [tf.convert_to_tensor(weight.value) for weight in self._form.model.weights]
        numbers = [tf.reshape(weight, (1, -1)) for weight in weights if weight.shape.num_elements()]
        return tf.concat(
            [tf.raw_ops.Fingerprint(data=row, method="farmhash64") for row in numbers], axis=0
        )

    def is_on_cpu(self) -> bool:
        return not any(tf.config.list_logical_devices(kind) for kind in ("GPU", "TPU"))

    def read_weights(self) -> None:
        if self._weights is None:
            self._weights = keras.tree.map_structure(
                lambda value: tf.Variable(value, trainable=False),
                self._operations.prepared(self._form.weights()),
            )
        else:
            self._assign_weights()
        self._positions.clear()

    def _assign(self) -> None:
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
        search._buffers = [part[:, :, :0] for part in search._memory]
        search._target_positions = self._table("decoder", max_length)
        return search

    def step(
        self, token_ids: np.ndarray, index: int, start: int, history_bias: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, beam_size = token_ids.shape
        capacity = history_bias.shape[2] // beam_size
        if beam_size not in self._steps:
            self._steps[beam_size] = self._step_program(beam_size, width)
        heads = self._form.sizes.num_heads
        first = start // beam_size
        places = np.arange(first, rows * heads * capacity, capacity, dtype="int32")
        scores, ids = self._steps[beam_size](
            tf.constant(token_ids),
            self._target_positions[index : index + 1],
            tf.constant(places),
            tf.constant(history_bias),
            self._memory_bias,
            *self._memory,
            *self._buffers,
        )
        shape = (rows, beam_size, -1)
        return scores.numpy().reshape(shape), ids.numpy().reshape(shape)

    def make_room(self, places: np.ndarray, room: int) -> None:
        self._buffers = [
            tf.pad(
                tf.gather(part, places[None].repeat(part.shape[0], 0), axis=2, batch_dims=2),
                [(0, 0), (0, 0), (0, room), (0, 0)],
            )
            for part in self._buffers
        ]

    def keep(self, rows: np.ndarray) -> None:
        self._memory_bias = tf.gather(self._memory_bias, rows)
        self._memory = [tf.gather(part, rows, axis=1) for part in self._memory]
        self._buffers = [tf.gather(part, rows, axis=1) for part in self._buffers]

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
            tf.TensorSpec((sizes.num_heads, None, None, size), dtype)
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
