"""Scaled dot-product attention (section 3.2.1 of the paper)."""

from collections.abc import Callable
from typing import Any

from keras_attention.ops.dispatch import operation


@operation
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
    flash: bool | None = False,
) -> Any:
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
