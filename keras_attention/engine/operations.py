"""The operations of inference: in plain `keras.ops`, which the fast ones of each backend must equal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_attention.engine.prepare import Matrix, Weights, prepare
from keras_attention.spec import NormSpec, TransformerSpec
from keras_attention.spec.parts import present_value

# Added to the score of a position that a row may not attend to; its weight is exactly zero.
MASKED = -1e9
MASKED_IN_HALF = -3e4


def present_weights(spec: TransformerSpec) -> list[Any]:
    """Return the weights of a spec as tensors."""
    from keras import ops

    return [ops.convert_to_tensor(present_value(weight)) for weight in spec.weights().values()]


def watched_weights(spec: TransformerSpec) -> list[Any]:
    """Return what changes if a weight of a spec does; arrays stay as they are."""
    weights = spec.weights().values()
    found = [one for weight in weights for one in getattr(weight, "sources", (weight,))]
    return [weight for weight in found if not isinstance(weight, np.ndarray)]


class Operations:
    """The operations of inference in plain `keras.ops`.

    Args:
        spec: What is computed.
        dtype: Dtype of weights and activations; gains of the normalisations, statistics, softmax and
            log-probabilities are float32.
    """

    def __init__(self, spec: TransformerSpec, dtype: str):
        self.spec = spec
        self.dtype = dtype
        self.masked = MASKED_IN_HALF if dtype == "float16" else MASKED

    @functools.cached_property
    def ops(self) -> Any:
        """The functions that are computed with, under the names of `keras.ops`."""
        from keras import ops

        return ops

    def prepare(self, spec: TransformerSpec) -> Weights:
        """Return the present weights of a spec in the form that the other methods take."""
        return prepare(spec, self)

    def read(self, weight: Any) -> Any:
        """Return the present value of a weight of the spec."""
        return self.ops.convert_to_tensor(present_value(weight))

    def prepare_table(self, table: Any) -> Any:
        """Return the embeddings (V, D), to look tokens up in."""
        return self.ops.cast(table, self.dtype)

    def prepare_softmax(self, table: Any, kernel: Any, bias: Any) -> Any:
        """Return the product to the logits, None where it is that with the table, and the float32 bias.

        `kernel` (D, V) is None where the table serves, and so is the bias (V,) where there is none.
        """
        matrix = None if kernel is None else self.prepare_matrix(Matrix(kernel))
        return matrix, None if bias is None else self.ops.cast(bias, "float32")

    def prepare_matrix(self, matrix: Matrix) -> Any:
        """Return a product's weights, for `linear`."""
        return Matrix(
            *(None if part is None else self.ops.cast(part, self.dtype) for part in matrix)
        )

    def prepare_norm(self, norm: NormSpec) -> Any:
        """Gains, and offsets or None."""
        parts = (norm.gamma, norm.beta)
        return tuple(None if part is None else self.ops.cast(part, "float32") for part in parts)

    def padding_bias(self, token_ids: Any) -> Any:
        """Return the bias (B, 1, 1, S) that hides padding: of ids (B, S)."""
        is_pad = self.ops.equal(token_ids, self.spec.pad_token_id)[:, None, None, :]
        return self.ops.cast(is_pad, self.dtype) * self.ops.cast(self.masked, self.dtype)

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        """Rows of the table, scaled, zero for padding, plus positions (T, D): ids (B, T) to (B T, D)."""
        rows = self.ops.take(table, token_ids, axis=0)
        is_token = self.ops.not_equal(token_ids, self.spec.pad_token_id)
        scale = self.ops.cast(is_token, self.dtype) * self.ops.cast(
            self.spec.hidden_dim**0.5, self.dtype
        )
        x = self.ops.add(
            self.ops.multiply(rows, scale[..., None]), self.ops.cast(positions, self.dtype)
        )
        return self.ops.reshape(x, (-1, self.spec.hidden_dim))

    def linear(self, x: Any, matrix: Any, activation: Callable[[Any], Any] | None = None) -> Any:
        """`activation(x W + b)` of (R, D)."""
        outputs = self.ops.matmul(x, matrix.kernel)
        if matrix.bias is not None:
            outputs = self.ops.add(outputs, matrix.bias)
        return outputs if activation is None else activation(outputs)

    def norm(self, x: Any, norm: Any, epsilon: float) -> Any:
        """Layer normalisation of (R, D), or RMSNorm."""
        gamma, beta = norm
        if beta is None:
            return self.ops.rms_normalization(x, gamma, -1, epsilon)
        return self.ops.layer_normalization(x, gamma, beta, -1, epsilon)

    def activation(self, name: str) -> Callable[[Any], Any]:
        """Return the activation of this name, one of `spec.parts.ACTIVATIONS`."""
        from keras import activations

        return activations.get(name)

    def heads(self, x: Any, num_rows: Any, widths: Sequence[int]) -> list[Any]:
        """Cuts (B T, N (d + d' ..)) into tensors (B, N, T, d), (B, N, T, d'), ..; B = `num_rows`."""
        num_heads = self.spec.num_heads
        ends = [num_heads * sum(widths[: i + 1]) for i in range(len(widths) - 1)]
        parts = self.ops.split(x, ends, axis=-1) if ends else [x]
        return [
            self.ops.transpose(
                self.ops.reshape(part, (num_rows, -1, num_heads, width)), (0, 2, 1, 3)
            )
            for part, width in zip(parts, widths, strict=True)
        ]

    def project(self, x: Any, matrix: Any, widths: Sequence[int], num_rows: Any) -> list[Any]:
        """Return the heads that a projection makes of (B T, D)."""
        return self.heads(self.linear(x, matrix), num_rows, widths)

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        """Attention of scaled queries (B, N, T, d), its heads joined: (B T, N d).

        `bias` (B, 1, 1 or T, P) is added to the scores: 0, or `masked`.
        """
        scores = self.ops.matmul(query, self.ops.transpose(key, (0, 1, 3, 2)))
        scores = self.ops.add(self.ops.cast(scores, "float32"), self.ops.cast(bias, "float32"))
        outputs = self.ops.matmul(
            self.ops.cast(self.ops.softmax(scores, axis=-1), self.dtype), value
        )
        outputs = self.ops.transpose(outputs, (0, 2, 1, 3))
        return self.ops.reshape(outputs, (-1, self.spec.num_heads * self.spec.value_dim))

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        """`buffer` (B, N, P, d) with `new` (B, N, W, d) written at position `start`."""
        return self.ops.slice_update(buffer, (0, 0, start, 0), new)

    def cell(self, projected: Any, state: Any, parents: Any) -> Any:
        """Return the float32 states (B, W, D) of an SSRU after rows (R, 2 D) for input and forget gate."""
        width = self.spec.hidden_dim
        projected = self.ops.cast(projected, "float32")
        forget = self.ops.sigmoid(projected[:, width:])
        last = self.ops.take(self.ops.reshape(state, (-1, width)), parents, axis=0)
        new = forget * last + (1.0 - forget) * projected[:, :width]
        return self.ops.reshape(new, self.ops.shape(state))

    def logits(self, x: Any, table: Any, softmax: Any) -> Any:
        """(R, D) to (R, V)."""
        matrix, bias = softmax
        logits = (
            self.ops.matmul(x, self.ops.transpose(table))
            if matrix is None
            else self.linear(x, matrix)
        )
        return logits if bias is None else self.ops.cast(logits, "float32") + bias

    def top_log_probs(self, logits: Any, width: int) -> tuple[Any, Any]:
        """Log-probabilities (float32) and ids, (R, width) each, of the likeliest tokens, best first."""
        from keras_attention.ops.top_k import top_k

        logits = self.ops.cast(logits, "float32")
        values, ids = top_k(logits, width)
        return values - self.ops.logsumexp(logits, axis=-1, keepdims=True), self.ops.cast(
            ids, "int32"
        )
