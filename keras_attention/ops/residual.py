"""Dropout, residual sum and layer normalisation in one operation."""

from typing import Any

from keras_attention.ops.dispatch import operation


@operation
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


@operation
def dropout(inputs: Any, rate: float, seed: Any) -> Any:
    """Return `inputs` with a share `rate` of its elements zero and the others divided by `1 - rate`.

    Args:
        inputs: Tensor of any shape.
        rate: Dropout rate, 0 < rate < 1.
        seed: A `keras.random.SeedGenerator`.

    Returns:
        Tensor of the shape and dtype of `inputs`.
    """
