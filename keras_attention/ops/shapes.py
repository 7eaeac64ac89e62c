"""New shapes without Keras' bookkeeping, which on PyTorch took a tenth of the time of a small update."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


def reshape(tensor: Any, shape: Sequence[Any]) -> Any:
    """`keras.ops.reshape`.

    Example:

    >>> tuple(reshape(ops.arange(6), (2, -1)).shape)
    (2, 3)
    """
    return tensor.reshape(shape) if _is_torch(tensor) else ops.reshape(tensor, shape)


def split_heads(tensor: Any, heads: int, widths: Sequence[int]) -> list[Any]:
    """Cut `(..., N w1 + N w2 + ...)` into `(..., N, w1)`, `(..., N, w2)` and so on.

    Example:

    >>> [tuple(part.shape) for part in split_heads(ops.ones((2, 21)), 3, (4, 2, 1))]
    [(2, 3, 4), (2, 3, 2), (2, 3, 1)]
    """
    leading = tuple(ops.shape(tensor))[:-1]
    if _is_torch(tensor) and len(set(widths)) == 1:
        # In this order PyTorch's backward pass joins the parts without copying each before.
        joined = tensor.reshape((*leading, heads * len(widths), widths[0]))
        return list(joined.split(heads, dim=-2))
    sizes = [heads * width for width in widths]
    if _is_torch(tensor):
        parts = tensor.split(sizes, dim=-1)
    else:
        parts = ops.split(tensor, [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)], axis=-1)
    return [
        reshape(part, (*leading, heads, width)) for part, width in zip(parts, widths, strict=True)
    ]


def _is_torch(tensor: Any) -> bool:
    return keras.backend.backend() == "torch" and ops.is_tensor(tensor)
