"""Dropout, residual sum and layer normalisation in one operation."""

from typing import Any

import keras
from keras import ops

from keras_attention.ops.dispatch import fast_kernel


def dropout_add_norm(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """`LayerNorm(inputs + Dropout(update))` over the last axis; statistics in float32.

    Args:
        inputs: Tensor of shape `(..., D)`.
        update: Tensor of the same shape.
        gamma: Gain of the normalisation, `(D,)`.
        beta: Bias of the normalisation, `(D,)`.
        epsilon: Added to the variance.
        rate: Dropout rate, 0 <= rate < 1.
        seed: A `keras.random.SeedGenerator`.

    Returns:
        Tensor of the shape and dtype of `inputs`.
    """
    kernel = fast_kernel("dropout_add_norm", inputs.shape[-1]) or dropout_add_norm_reference
    return kernel(inputs, update, gamma, beta, epsilon, rate, seed)


def dropout_add_norm_reference(
    inputs: Any, update: Any, gamma: Any, beta: Any, epsilon: float, rate: float, seed: Any
) -> Any:
    """The definition of `dropout_add_norm`, which the fast kernels must equal."""
    if rate > 0.0:
        update = keras.random.dropout(update, rate, seed=seed)
    return ops.layer_normalization(ops.add(inputs, update), gamma, beta, -1, epsilon)


def dropout(inputs: Any, rate: float, seed: Any) -> Any:
    """`inputs` with a share `rate` of its elements zero and the others divided by `1 - rate`.

    Args:
        inputs: Tensor of any shape.
        rate: Dropout rate, 0 < rate < 1.
        seed: A `keras.random.SeedGenerator`.

    Returns:
        Tensor of the shape and dtype of `inputs`.
    """
    kernel = fast_kernel("dropout", inputs.shape[-1]) or dropout_reference
    return kernel(inputs, rate, seed)


def dropout_reference(inputs: Any, rate: float, seed: Any) -> Any:
    """The definition of `dropout`, which the fast kernels must equal."""
    return keras.random.dropout(inputs, rate, seed=seed)
