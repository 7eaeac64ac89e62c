"""Inference by NumPy alone, in float32: slower than any other engine, but nothing is compiled first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_attention.engine.forward import ForwardEngine, ForwardState
from keras_attention.engine.operations import Operations
from keras_attention.spec import TransformerSpec
from keras_attention.spec.parts import as_array

# Scores of an attention that are computed at once.
LARGEST_SCORES = 2**24


class Functions:
    """NumPy's functions and those of `keras.ops` that NumPy lacks, as far as engine and search use them."""

    def __getattr__(self, name: str) -> Any:
        setattr(self, name, getattr(np, name))  # It is asked for often.
        return getattr(np, name)

    @staticmethod
    def convert_to_tensor(weight: Any) -> np.ndarray:
        return as_array(weight)

    @staticmethod
    def cast(x: Any, dtype: str) -> np.ndarray:
        return np.asarray(x, dtype)

    @staticmethod
    def top_k(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Of rows; ties keep their order, NaN is last."""
        places = np.argsort(-x, axis=1, kind="stable")[:, :k]
        return Functions.take_along_axis(x, places, 1), places

    @staticmethod
    def argsort(x: np.ndarray, axis: int) -> np.ndarray:
        """Ties keep their order, as in `keras.ops`."""
        return np.argsort(x, axis, kind="stable")

    @staticmethod
    def take_along_axis(x: np.ndarray, places: np.ndarray, axis: int) -> np.ndarray:
        """Of rows, for which NumPy's own takes long."""
        return x[np.arange(len(x))[:, None], places]

    @staticmethod
    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, np.float32(0.0))

    @staticmethod
    def sigmoid(x: np.ndarray) -> np.ndarray:
        return np.float32(0.5) * (np.float32(1.0) + np.tanh(np.float32(0.5) * x))

    @staticmethod
    def softmax(x: np.ndarray, axis: int) -> np.ndarray:
        weights = np.exp(x - x.max(axis, keepdims=True))
        return weights / weights.sum(axis, keepdims=True)

    @staticmethod
    def layer_normalization(
        x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axis: int, epsilon: float
    ) -> np.ndarray:
        centered = x - x.mean(axis, keepdims=True)
        variance = np.square(centered).mean(axis, keepdims=True)
        return centered / np.sqrt(variance + np.float32(epsilon)) * gamma + beta

    @staticmethod
    def rms_normalization(
        x: np.ndarray, gamma: np.ndarray, axis: int, epsilon: float
    ) -> np.ndarray:
        squares = np.square(x).mean(axis, keepdims=True)
        return x / np.sqrt(squares + np.float32(epsilon)) * gamma


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": Functions.relu,
    "linear": lambda x: x,
    "silu": lambda x: x * Functions.sigmoid(x),
    "tanh": np.tanh,
    "sigmoid": Functions.sigmoid,
}


class NumPyOperations(Operations):
    """`Operations` in NumPy; buffers are written in place."""

    ops = Functions()

    def activation(self, name: str) -> Callable[[Any], Any]:
        return ACTIVATIONS[name]

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        # The attention of a long source is computed in parts: else it takes gigabytes, and hears no Ctrl-C.
        count, heads, length, _ = query.shape
        most = max(1, LARGEST_SCORES // (count * heads * key.shape[2]))
        if length <= most:
            return super().attend(query, key, value, bias)
        parts = []
        for first in range(0, length, most):
            rows = slice(first, first + most)
            seen = bias if bias.shape[2] == 1 else bias[:, :, rows]
            part = super().attend(query[:, :, rows], key, value, seen)
            parts.append(part.reshape(count, -1, part.shape[-1]))
        return np.concatenate(parts, axis=1).reshape(count * length, -1)

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        end = start + new.shape[2]
        buffer[:, :, start:end] = new
        return buffer[:, :, :end]

    def top_log_probs(self, logits: Any, width: int) -> tuple[Any, Any]:
        return likeliest(logits, width)


def likeliest(logits: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities and ids (R, width) of the likeliest tokens of (R, V), best first."""
    best = logits.max(axis=-1, keepdims=True)
    total = best + np.log(np.exp(logits - best).sum(axis=-1, keepdims=True))
    ids = np.argpartition(-logits, min(width, logits.shape[-1]) - 1, axis=-1)[:, :width]
    scores = np.take_along_axis(logits, ids, axis=-1)
    order = np.lexsort((ids, -scores), axis=-1)
    ids, scores = (np.take_along_axis(each, order, axis=-1) for each in (ids, scores))
    return scores - total, ids.astype("int32")


class NumPyState(ForwardState):
    """One search of a `NumPyEngine`."""

    def compact(self, slots: np.ndarray, room: int) -> None:
        chosen, free = slots[:, None, :, None], ((0, 0), (0, 0), (0, room), (0, 0))
        self._buffers = [
            buffers
            if i in self.engine.cells
            else tuple(np.pad(np.take_along_axis(part, chosen, 2), free) for part in buffers)
            for i, buffers in enumerate(self._buffers)
        ]


class NumPyEngine(ForwardEngine):
    """Runs a spec by NumPy, in `"float32"`."""

    name = "numpy"
    kind_of_state = NumPyState

    def __init__(self, spec: TransformerSpec, precision: str):
        super().__init__(spec, precision, NumPyOperations(spec, precision))


ENGINE = NumPyEngine
