"""What each operation computes, in plain `keras.ops`: the definitions that every fast form must equal.

This file imports nothing of the package. `DEFINITIONS` names all operations.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import backend, ops

# Far below any score, yet finite: a fully masked row must not become NaN.
MASKED_SCORE = -1e9
# Fast forms leave inputs narrower than this to the definitions: there is nothing to save.
SMALLEST_WIDTH = 64


def is_float64(tensor: Any) -> bool:
    """Whether a tensor or variable is float64, of which Keras makes float32 in more than one place.

    On JAX and PyTorch, `keras.backend.result_type("float64")` is float32.
    """
    dtype = getattr(tensor, "dtype", None)
    return dtype is not None and _name_of(dtype) == "float64"


@functools.cache
def _name_of(dtype: Any) -> str:
    """`standardize_dtype`, which is asked at each operation and searches its tables each time."""
    return backend.standardize_dtype(dtype)


def at_least_float32(tensor: Any) -> Any:
    """Return the tensor in float32, or as it is in float64: what sums are formed in."""
    return tensor if is_float64(tensor) else ops.cast(tensor, "float32")


def matmul(x1: Any, x2: Any) -> Any:
    """`ops.matmul`, which is float32 for float64 on PyTorch."""
    return x1 @ x2 if is_float64(x1) and is_float64(x2) else ops.matmul(x1, x2)


def layer_norm(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """`ops.layer_normalization` over the last axis, which is float32 for float64 on JAX and PyTorch."""
    if not is_float64(inputs):
        return ops.layer_normalization(inputs, gamma, beta, -1, epsilon)
    width = inputs.shape[-1]
    centered = inputs - ops.sum(inputs, axis=-1, keepdims=True) / width
    variance = ops.sum(centered * centered, axis=-1, keepdims=True) / width
    gamma, beta = ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta)
    return centered / ops.sqrt(variance + epsilon) * gamma + beta


def linear(
    inputs: Any, kernel: Any, bias: Any = None, relu: bool = False, input_axes: int = 1
) -> Any:
    """Return `inputs @ kernel + bias` over the last axis, or the last axes.

    All other axes are folded into one first: a product of rank 2 with rank 2 is the form for which
    every backend calls its fastest GEMM, forward and backward.

    Args:
        inputs: Tensor of shape `(..., D)`; `(..., N, V)` for two input axes.
        kernel: Tensor of shape `(D, F)`; `(D, N, K)` makes heads, `(N, V, D)` joins them.
        bias: Optional tensor of the shape of the kernel's output axes, such as `(F,)`.
        relu: Whether numbers below zero become zero.
        input_axes: How many of the kernel's first axes are those of the inputs.

    Returns:
        Tensor of shape `(..., F)`: the kernel's other axes in place of those it took.
    """
    leading, output_axes = ops.shape(inputs)[:-input_axes], kernel.shape[input_axes:]
    rows = math.prod(kernel.shape[:input_axes])
    # A product of rank 2 with rank 2 is the form for which backends call their fastest GEMM.
    outputs = matmul(ops.reshape(inputs, (-1, rows)), ops.reshape(kernel, (rows, -1)))
    if bias is not None:
        outputs = ops.add(outputs, ops.reshape(bias, (-1,)))
    outputs = ops.relu(outputs) if relu else outputs
    return ops.reshape(outputs, (*leading, *output_axes))


def joined_linear(
    inputs: Any, kernels: Sequence[Any], biases: Sequence[Any] | None = None
) -> list[Any]:
    """`linear(inputs, kernel, bias)` for several kernels, in one product where that is faster.

    Args:
        inputs: Tensor of shape `(..., D)`.
        kernels: Tensors of shape `(D, N, K)`, with an N in common; of one dtype.
        biases: Optional tensors of shape `(N, K)`, one for each kernel.

    Returns:
        A list of tensors of shape `(..., N, K)`.
    """
    matrices = [ops.reshape(kernel, (kernel.shape[0], -1)) for kernel in kernels]
    bias = None if biases is None else ops.concatenate([ops.reshape(b, (-1,)) for b in biases])
    outputs = linear(inputs, ops.concatenate(matrices, axis=-1), bias)
    ends = list(itertools.accumulate(matrix.shape[-1] for matrix in matrices))
    leading = ops.shape(inputs)[:-1]
    return [
        ops.reshape(part, (*leading, *kernel.shape[1:]))
        for part, kernel in zip(ops.split(outputs, ends[:-1], axis=-1), kernels, strict=True)
    ]


def masked_softmax(scores: Any, mask: Any = None, axis: int | tuple[int, ...] = -1) -> Any:
    """Softmax over the allowed positions, in float32 or float64, returned in the dtype of `scores`.

    `mask` is broadcastable to `scores`, True = may attend. The weights of masked positions are exactly zero,
    so a row without any allowed position is all zeros.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    scores = at_least_float32(scores)
    if mask is not None:
        scores = ops.where(mask, scores, ops.cast(MASKED_SCORE, scores.dtype))
    if isinstance(axis, tuple) or scores.shape[axis] == 1:  # of one position `ops.softmax` warns
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
    flash: bool | None = False,
) -> tuple[Any, Any]:
    """Compute `softmax(scale * Q K^T) V` for every head (equation 1 of the paper).

    Args:
        query: Tensor of shape `(B, T, N, K)`.
        key: Tensor of shape `(B, S, N, K)`.
        value: Tensor of shape `(B, S, N, V)`.
        mask: Boolean tensor broadcastable to `(B, N, T, S)`; True = may attend. A row that may attend
            to nothing gives zeros.
        scale: Factor of the products, `K ** -0.5` in the paper.
        dropout: Applied to the weights before they meet the values.
        flash: Whether a fused kernel may compute the outputs without ever writing the weights to
            memory: False for never, None for where there is one and it is faster, True for always.
            PyTorch has one on every device, TensorFlow none, JAX cuDNN's on GPUs: in half precision, for
            even T and S and K = V of 8, 16, ... up to 128.
            With `dropout` it is not used.

    Returns:
        The outputs, `(B, T, N, V)`, and the weights before dropout, `(B, N, T, S)`; None for weights
        that were never formed.

    Raises:
        ValueError: `flash=True` on a backend without a fused kernel.
    """
    if flash:
        raise ValueError(
            "flash_attention=True needs a fused attention kernel. PyTorch has one on every device; JAX on "
            "GPUs, in half precision, for even lengths and heads of 8, 16, ... up to 128 columns; the "
            "running backend has none here. Leave flash_attention=None: the kernel is used where there is "
            "one. Received: flash_attention=True"
        )
    # A cast would go through float32.
    query = ops.multiply(query, ops.convert_to_tensor(scale, query.dtype))
    query = ops.transpose(query, (0, 2, 1, 3))
    key = ops.transpose(key, (0, 2, 3, 1))
    value = ops.transpose(value, (0, 2, 1, 3))
    weights = masked_softmax(matmul(query, key), mask)
    applied = weights if dropout is None else dropout(weights)
    outputs = matmul(applied, value)
    return ops.transpose(outputs, (0, 2, 1, 3)), weights


def attend_without_blind_rows(
    attend: Callable[[Any, Any, Any, Any, float], Any],
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    scale: float,
) -> Any:
    """Return what a fused kernel computes, but zeros for rows that may attend to nothing, as defined."""
    if mask is None:
        return attend(query, key, value, None, scale)
    mask = ops.reshape(mask, (1,) * (4 - len(mask.shape)) + tuple(ops.shape(mask)))
    # Kernels differ on such rows: let them see all, and drop what they saw.
    sees_any = ops.any(mask, axis=-1, keepdims=True)
    mask = ops.logical_or(mask, ops.logical_not(sees_any))
    outputs = attend(query, key, value, mask, scale)
    sees_any = ops.transpose(sees_any, (0, 2, 1, 3))
    return ops.where(sees_any, outputs, ops.zeros((), outputs.dtype))


def dropout_add_norm(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """`LayerNorm(inputs + Dropout(update))` over the last axis, with `seed`, a `SeedGenerator`.

    Statistics are float32, gamma and beta (D,); with a rate of 0 nothing is dropped.
    """
    if rate > 0.0:
        update = keras.random.dropout(update, rate, seed=seed)
    return layer_norm(ops.add(inputs, update), gamma, beta, epsilon)


def smoothed_crossentropy(logits: Any, labels: Any, on_value: float, off_value: float) -> Any:
    """`-sum_v q(v) log p(v)`, with q = `on_value` for the label and `off_value` for every other token.

    It is computed as `total log sum_v exp(z_v) - (on - off) z_label - off sum_v z_v`.

    Args:
        logits: Tensor of shape `(rows, V)`.
        labels: Integers of shape `(rows,)`.
        on_value: Probability of the label in the target distribution.
        off_value: Probability of each other token.

    Returns:
        Tensor of shape `(rows,)`, float32, of float64 logits float64, nats.
    """
    total = on_value + (logits.shape[-1] - 1) * off_value
    logits, labels = at_least_float32(logits), ops.cast(labels, "int32")
    log_normalizer = ops.logsumexp(logits, axis=-1)
    label_logits = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    loss = total * log_normalizer - (on_value - off_value) * label_logits
    # Not `off_value` times the sum, which may be above float32's range.
    return loss - ops.sum(off_value * logits, axis=-1) if off_value else loss


def global_norm(gradients: Sequence[Any]) -> Any:
    """Compute the L2 norm of all gradients together, as if they were one long vector.

    On TensorFlow they may be `tf.IndexedSlices`. The scalar is float32, of float64 gradients float64; it is
    infinite or NaN if one of the numbers is, or the norm is above the range.
    """
    squares = [ops.sum(ops.square(at_least_float32(gradient))) for gradient in gradients]
    return ops.sqrt(functools.reduce(ops.add, squares))


_ALL = (
    *(dot_product_attention, dropout_add_norm, global_norm, joined_linear, linear),
    *(smoothed_crossentropy, keras.random.dropout, ops.reshape),
)
DEFINITIONS: dict[str, Callable[..., Any]] = {one.__name__: one for one in _ALL}
