"""Scaled dot-product attention (section 3.2.1 of the paper)."""

from collections.abc import Callable
from typing import Any

from keras import backend, ops

from keras_attention.ops.dispatch import fast_kernel

# Far below any score, yet finite: a fully masked row must not become NaN. Softmax runs in float32.
MASKED_SCORE = -1e9


def masked_softmax(scores: Any, mask: Any = None, axis: int | tuple[int, ...] = -1) -> Any:
    """Softmax over the allowed positions, computed in float32, returned in the dtype of `scores`.

    Args:
        scores: Attention scores, shape `(..., T, S)`.
        mask: Boolean tensor broadcastable to `scores`; True = may attend.
        axis: The axis, or axes, of the positions attended to.

    Returns:
        Weights of the shape of `scores`. Masked positions are exactly zero, so a row without any
        allowed position is all zeros.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    if dtype != "float64":
        scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = ops.where(mask, scores, ops.cast(MASKED_SCORE, scores.dtype))
    if isinstance(axis, tuple):
        weights = ops.exp(ops.subtract(scores, ops.logsumexp(scores, axis=axis, keepdims=True)))
    else:
        weights = ops.softmax(scores, axis=axis)
    if mask is not None:
        weights = ops.where(mask, weights, ops.zeros((), dtype=weights.dtype))
    return ops.cast(weights, dtype)


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Compute `softmax(scale * Q K^T) V` for every head (equation 1 of the paper).

    Args:
        query: Tensor of shape `(B, T, N, K)`.
        key: Tensor of shape `(B, S, N, K)`.
        value: Tensor of shape `(B, S, N, V)`.
        mask: Boolean tensor broadcastable to `(B, N, T, S)`; True = may attend.
        scale: Factor of the products, `K ** -0.5` in the paper.
        dropout: Applied to the weights before they meet the values.

    Returns:
        The outputs, `(B, T, N, V)`, and the weights before dropout, `(B, N, T, S)`.
    """
    kernel = fast_kernel("attention", query.shape[-2] * query.shape[-1])
    kernel = kernel or dot_product_attention_reference
    return kernel(query, key, value, mask, scale, dropout)


def dot_product_attention_reference(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """The definition of `dot_product_attention`, which the fast kernels must equal."""
    query = ops.multiply(query, ops.cast(scale, query.dtype))
    query = ops.transpose(query, (0, 2, 1, 3))
    key = ops.transpose(key, (0, 2, 3, 1))
    value = ops.transpose(value, (0, 2, 1, 3))
    weights = masked_softmax(ops.matmul(query, key), mask)
    applied = weights if dropout is None else dropout(weights)
    outputs = ops.matmul(applied, value)
    return ops.transpose(outputs, (0, 2, 1, 3)), weights
