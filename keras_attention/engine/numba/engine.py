"""Inference on CPUs by Numba, on every backend: NumPy arrays, few and cheap calls, tiles of products.

Few sentences take as long as reading the weights and starting hundreds of small operations, which cost
little here; many take as long as the products, by the tiles of `numba_tiles`. Weights are stored in
float32, bfloat16 or 8-bit integers, activations are float32. Heads come after positions, (B, T, N, d), as
a projection makes them: nothing is transposed.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attention.engine.forward import Operations, Weights, decode, encode
from keras_attention.engine.numba import kernels
from keras_attention.engine.numba.attention import attend
from keras_attention.engine.numba.tiles import PANEL
from keras_attention.utils.freed_memory import keep_freed_memory

keep_freed_memory()

# Not all of Numba's threading layers bear two callers at once.
_ONE_CALLER = threading.Lock()


class Kept(NamedTuple):
    """Keys or values that steps read again. Sentences that are done stay, and nobody looks at them."""

    array: np.ndarray  # (lines, P, N, d)
    lines: np.ndarray  # (B,), where each sentence's are

    def only(self, rows: np.ndarray) -> Kept:
        """Those of some of the sentences."""
        return Kept(self.array, self.lines[rows])


class NumbaOperations(Operations):
    """`Operations` on NumPy arrays.

    Args:
        sizes: The model's sizes.
        precision: Of products with weights: `"float32"`, `"bfloat16"`, or `"int8"`, which is
            `ops.int8.int8_linear`.
    """

    def __init__(self, sizes: Any, precision: str):
        super().__init__(sizes, "float32")
        self.storage = kernels.Storage(precision)

    def prepared_matrix(self, matrix: Any) -> Any:
        weight = _array(matrix["kernel"]).T
        bias = _array(matrix["bias"]) if "bias" in matrix else np.zeros(len(weight), "float32")
        return self.storage.packed(weight, bias), len(weight)

    def prepared_norm(self, norm: Any) -> Any:
        return _array(norm["gamma"]), _array(norm["beta"])

    def prepared_table(self, table: Any) -> Any:
        rows = _array(table)
        return {"rows": rows, "matrix": self.prepared_matrix({"kernel": rows.T})}

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
        relu = activation is keras.activations.relu
        self.storage.product(x, weight, relu, outputs)
        outputs = outputs[0]
        if activation is None or relu:
            return outputs
        return _array(activation(ops.convert_to_tensor(outputs)))

    def norm(self, x: Any, norm: Any) -> Any:
        return self.norm_of_sum(x, np.zeros_like(x), norm)

    def norm_of_sum(self, x: Any, update: Any, norm: Any) -> Any:
        outputs = np.empty_like(x)
        kernels.normalize(x, update, norm[0], norm[1], np.float32(self.sizes.epsilon), outputs)
        return outputs

    def project(
        self, x: Any, block: Weights, name: str, num_rows: Any, tokens: Any = None
    ) -> list[Any]:
        """The heads of a block's projection, each kind (B, T, N, d)."""
        weight, width = block[name]
        widths = self.widths(name)
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
        if isinstance(key, Kept):
            key, value, lines = key.array, value.array, key.lines
        outputs = np.empty((rows, length, num_heads, value.shape[3]), "float32")
        attend(query, key, value, lines, bias[:, 0], outputs)
        return outputs.reshape(rows * length, -1)

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        buffer.array[buffer.lines, start : start + new.shape[1]] = self.storage.kept(new)
        return buffer  # the bias has no places for the room behind

    def logits(self, x: Any, table: Any) -> Any:
        return self.linear(x, table["matrix"])

    def best(self, logits: Any, width: int) -> tuple[Any, Any]:
        values = np.empty((len(logits), width), "float32")
        ids = np.empty((len(logits), width), "int32")
        kernels.best(logits, values, ids)
        return values, ids


class NumbaDecoder:
    """Decodes with a model; what `start` returns is a `decoding.shared_search.Decoder`.

    Args:
        form: The model's `InferenceForm`.
        precision: `"float32"`, `"bfloat16"` or `"int8"`.
    """

    fixed_shapes = False
    keep_copies = False
    _memory: list[tuple[Kept, Kept]]
    _memory_bias: np.ndarray
    _buffers: list[tuple[Kept, Kept]]
    _target_positions: np.ndarray

    def __init__(self, form: Any, precision: str):
        self._form = form
        self._operations = NumbaOperations(form.sizes, precision)
        self._weights: Any = None
        self._is_compiled = False
        self.masked = self._operations.masked

    def read_weights(self) -> None:
        self._weights = None  # the old ones may go before the new ones come
        self._weights = self._operations.prepared(self._form.weights())
        self._positions: dict[tuple[str, int], Any] = {}

    def needs_compiling(self, rows: int, length: int) -> bool:
        return not self._is_compiled

    def fitting_rows(self, number: int) -> int:
        return number

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> NumbaDecoder:
        """Reads the source ids (B, S)."""
        self._is_compiled = True
        search = copy.copy(self)
        positions = self._table("encoder", token_ids.shape[1])
        with _ONE_CALLER:
            memory, search._memory_bias = encode(
                self._operations, self._weights, token_ids, positions
            )
            kept, lines = self._operations.storage.kept, np.arange(len(token_ids))
            search._memory = [
                (Kept(kept(key), lines), Kept(kept(value), lines)) for key, value in memory
            ]
        search._buffers = [
            (Kept(key.array[:, :0], lines), Kept(value.array[:, :0], lines))
            for key, value in search._memory
        ]
        search._target_positions = self._table("decoder", max_length)
        return search

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
                self._target_positions[index : index + 1],
                start,
                seen,
                self._buffers,
                self._memory,
                self._memory_bias,
            )
            logits = self._operations.scores(hidden, self._weights)
            scores, ids = self._operations.best(logits, min(width, logits.shape[1]))
        shape = (rows, beam_size, -1)
        return scores.reshape(shape), ids.reshape(shape)

    def make_room(self, places: np.ndarray, room: int) -> None:
        number, used = places.shape

        def moved(buffer: Kept) -> Kept:
            array, lines = buffer
            into = np.empty((number, used + room, *array.shape[2:]), array.dtype)
            into[:, :used] = array[lines[:, None], places]
            return Kept(into, np.arange(number))

        self._buffers = [(moved(key), moved(value)) for key, value in self._buffers]

    def keep(self, rows: np.ndarray) -> None:
        self._memory_bias = self._memory_bias[rows]
        self._memory, self._buffers = (
            [(key.only(rows), value.only(rows)) for key, value in pairs]
            for pairs in (self._memory, self._buffers)
        )

    def _table(self, kind: str, length: int) -> Any:
        if (kind, length) not in self._positions:
            self._positions[kind, length] = self._form.positions(kind, length)
        return self._positions[kind, length]


def _array(tensor: Any) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))
