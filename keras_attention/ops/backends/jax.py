"""What JAX does otherwise than the definitions: cuDNN's attention. XLA fuses the rest as well as by hand.

Kernels for the loss, and for dropout with its sum and norm, went: an update without them took
0.97 to 1.02 of its time with them (`benchmarks/each_kernel.py base` and `tiny`, 28 November 2026, a CPU).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from keras_attention.ops import reference


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    scale: float = 1.0,
    dropout: Callable[[Any], Any] | None = None,
    flash: bool | None = False,
) -> tuple[Any, Any]:
    """See `keras_attention.ops.reference.dot_product_attention`; fused on GPUs."""
    if flash is False or dropout is not None or not _suits_cudnn(query, key, value):
        return reference.dot_product_attention(query, key, value, mask, scale, dropout, flash)
    return reference.attend_without_blind_rows(_fused, query, key, value, mask, scale), None


def _suits_cudnn(query, key, value):
    # Keras' own operation tries cuDNN, logs a traceback for each shape that it refuses, and falls back on a
    # function that needs values as wide as keys.
    width, lengths = query.shape[-1], (query.shape[1], key.shape[1])
    return (
        jax.default_backend() == "gpu"
        and all(tensor.dtype in (jnp.bfloat16, jnp.float16) for tensor in (query, key, value))
        and value.shape[-1] == width <= 128
        and width % 8 == 0
        and all(length % 2 == 0 for length in lengths)
    )


def _fused(query, key, value, mask, scale):
    if mask is not None:
        # Heads and sentences may share a mask; cuDNN wants all its rows and columns.
        shape = (*mask.shape[:2], query.shape[1], key.shape[1])
        mask = jnp.broadcast_to(mask, shape)
    return jax.nn.dot_product_attention(
        query, key, value, mask=mask, scale=scale, implementation="cudnn"
    )


KERNELS: dict[str, Callable[..., Any]] = {"dot_product_attention": dot_product_attention}
