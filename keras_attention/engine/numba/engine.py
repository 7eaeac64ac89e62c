"""Inference on CPUs by Numba, on every backend: NumPy arrays, few and cheap calls, tiles of products.

Few sentences take as long as reading the weights and starting hundreds of small operations, which cost
little here; many take as long as the products, by the tiles of `numba_tiles`. Weights are stored in
float32, bfloat16 or 8-bit integers, activations are float32. Heads come after positions, (B, T, N, d), as
a projection makes them: nothing is transposed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_attention.engine.base import Engine, State
from keras_attention.engine.forward import Operations, decode, encode
from keras_attention.engine.numba import kernels
from keras_attention.engine.numba.attention import attend
from keras_attention.engine.numba.tiles import PANEL
from keras_attention.engine.prepare import Matrix
from keras_attention.spec import NormSpec, TransformerSpec

# Not all of Numba's threading layers bear two callers at once.
_ONE_CALLER = threading.Lock()


class KVBuffer(NamedTuple):
    """Keys or values that steps read again. Sentences that are done stay, and nobody looks at them."""

    array: np.ndarray  # (all sentences, P, N, d)
    rows: np.ndarray  # (B,), where each sentence's are

    def take(self, rows: np.ndarray) -> KVBuffer:
        """Those of some of the sentences."""
        return KVBuffer(self.array, self.rows[rows])


class NumbaOperations(Operations):
    """`Operations` on NumPy arrays.

    Args:
        spec: What is computed.
        precision: Of products with weights: `"float32"`, `"bfloat16"`, or `"int8"`, which is
            `ops.int8.int8_linear`.
    """

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, "float32")
        self.storage = kernels.Storage(precision)

    def prepare_matrix(self, matrix: Matrix) -> Any:
        weight = _array(matrix.kernel).T
        no_bias = np.zeros(len(weight), "float32")
        bias = no_bias if matrix.bias is None else _array(matrix.bias)
        return self.storage.packed(weight, bias), len(weight)

    def prepare_norm(self, norm: NormSpec) -> Any:
        return _array(norm.gamma), _array(norm.beta)

    def prepare_table(self, table: Any) -> Any:
        rows = _array(table)
        return {"rows": rows, "matrix": self.prepare_matrix(Matrix(rows.T))}

    def padding_bias(self, token_ids: Any) -> Any:
        is_pad = token_ids == self.sizes.pad_token_id
        return np.where(is_pad, np.float32(self.masked), np.float32(0.0))[:, None, None]

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        is_token = token_ids != self.sizes.pad_token_id
        scale = is_token * np.float32(self.sizes.hidden_dim**0.5)
        x = table["rows"][token_ids] * scale[..., None] + positions
        return x.reshape(-1, self.sizes.hidden_dim)

    def tokens(self, token_ids: Any) -> Any:
        is_token = token_ids.ravel() != self.sizes.pad_token_id
        return None if is_token.all() else (np.flatnonzero(is_token), len(is_token))

    def without_padding(self, x: Any, tokens: Any) -> Any:
        return x[tokens[0]]

    def with_padding(self, x: Any, tokens: Any) -> Any:
        places, number = tokens
        padded = np.zeros((number, x.shape[1]), "float32")
        padded[places] = x
        return padded

    def linear(self, x: Any, matrix: Any, activation: Callable[[Any], Any] | None = None) -> Any:
        weight, width = matrix
        outputs = np.empty((1, len(x), width), "float32")
        relu = activation is self.activation("relu")
        self.storage.product(x, weight, relu, outputs)
        outputs = outputs[0]
        if activation is None or relu:
            return outputs
        return _array(activation(ops.convert_to_tensor(outputs)))

    def norm(self, x: Any, norm: Any, epsilon: float) -> Any:
        return self.norm_of_sum(x, np.zeros_like(x), norm, epsilon)

    def norm_of_sum(self, x: Any, update: Any, norm: Any, epsilon: float) -> Any:
        outputs = np.empty_like(x)
        kernels.normalize(x, update, norm[0], norm[1], np.float32(epsilon), outputs)
        return outputs

    def project(
        self, x: Any, matrix: Any, widths: Sequence[int], num_rows: Any, tokens: Any = None
    ) -> list[Any]:
        """The heads that a projection makes, each kind (B, T, N, d)."""
        weight, width = matrix
        # Kinds of the same width, of whole panels, come apart from the product.
        number = len(widths) if len(set(widths)) == 1 and width // len(widths) % PANEL == 0 else 1
        outputs = np.empty((number, len(x), width // number), "float32")
        self.storage.product(x, weight, False, outputs)
        parts = list(outputs)
        if tokens is not None:
            parts = [self.with_padding(part, tokens) for part in parts]
        if number < len(widths):
            ends = np.cumsum([self.sizes.num_heads * width for width in widths])[:-1]
            parts = np.split(parts[0], ends, axis=1)
        return [
            np.ascontiguousarray(part).reshape(num_rows, -1, self.sizes.num_heads, width)
            for part, width in zip(parts, widths, strict=True)
        ]

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        rows, length, num_heads, _ = query.shape
        lines = np.arange(rows)
        if isinstance(key, KVBuffer):
            key, value, lines = key.array, value.array, key.rows
        outputs = np.empty((rows, length, num_heads, value.shape[3]), "float32")
        attend(query, key, value, lines, bias[:, 0], outputs)
        return outputs.reshape(rows * length, -1)

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        buffer.array[buffer.rows, start : start + new.shape[1]] = self.storage.kept(new)
        return buffer  # the bias has no slots for the room behind

    def logits(self, x: Any, table: Any) -> Any:
        return self.linear(x, table["matrix"])

    def top_log_probs(self, logits: Any, width: int) -> tuple[Any, Any]:
        values = np.empty((len(logits), width), "float32")
        ids = np.empty((len(logits), width), "int32")
        kernels.best(logits, values, ids)
        return values, ids


class NumbaEngine(Engine):
    """Runs a spec on a CPU, whatever the backend, in `"float32"`, `"bfloat16"` or `"int8"`."""

    name = "numba"
    selection_copies = False

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision)
        self.operations = NumbaOperations(spec, precision)
        self.weights: Any = None
        self._is_compiled = False

    def read_weights(self) -> None:
        self.weights = None  # the old ones may go before the new ones come
        self.weights = self.operations.prepare(self.spec)
        self._positions.clear()

    def needs_compiling(self, batch_size: int, length: int) -> bool:
        return not self._is_compiled

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> NumbaState:
        self._is_compiled = True
        positions = self.positions("encoder", token_ids.shape[1])
        with _ONE_CALLER:
            memory, bias = encode(self.operations, self.weights, token_ids, positions)
            return NumbaState(self, memory, bias, self.positions("decoder", max_length))

    def as_array(self, weight: Any) -> np.ndarray:
        return _array(weight)

    def as_tensor(self, array: np.ndarray) -> np.ndarray:
        return array


class NumbaState(State):
    """One search of a `NumbaEngine`."""

    def __init__(self, engine: NumbaEngine, memory: Any, memory_bias: Any, positions: Any):
        self.engine = engine
        self.masked = engine.operations.masked
        self._operations, self._weights = engine.operations, engine.weights
        kept, rows = self._operations.storage.kept, np.arange(len(memory_bias))
        self._memory = [
            (KVBuffer(kept(key), rows), KVBuffer(kept(value), rows)) for key, value in memory
        ]
        self._memory_bias = memory_bias
        self._buffers = [
            (KVBuffer(key.array[:, :0], rows), KVBuffer(value.array[:, :0], rows))
            for key, value in self._memory
        ]
        self._positions = positions

    def step(
        self, token_ids: np.ndarray, index: int, start: int, history_bias: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, beam_size = token_ids.shape
        seen = np.ascontiguousarray(history_bias[:, None, :, : start + beam_size])
        with _ONE_CALLER:
            hidden, _ = decode(
                self._operations,
                self._weights,
                token_ids,
                self._positions[index : index + 1],
                start,
                seen,
                self._buffers,
                self._memory,
                self._memory_bias,
            )
            logits = self._operations.scores(hidden, self._weights)
            scores, ids = self._operations.top_log_probs(logits, min(width, logits.shape[1]))
        shape = (rows, beam_size, -1)
        return scores.reshape(shape), ids.reshape(shape)

    def compact(self, slots: np.ndarray, room: int) -> None:
        number, used = slots.shape

        def moved(buffer: KVBuffer) -> KVBuffer:
            array, rows = buffer
            into = np.empty((number, used + room, *array.shape[2:]), array.dtype)
            into[:, :used] = array[rows[:, None], slots]
            return KVBuffer(into, np.arange(number))

        self._buffers = [(moved(key), moved(value)) for key, value in self._buffers]

    def select_rows(self, rows: np.ndarray) -> None:
        self._memory_bias = self._memory_bias[rows]
        self._memory, self._buffers = (
            [(key.take(rows), value.take(rows)) for key, value in pairs]
            for pairs in (self._memory, self._buffers)
        )


def _array(tensor: Any) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


ENGINE = NumbaEngine
