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


def split_last(tensor: Any, sizes: Sequence[int]) -> Any:
    """Cut the last axis into parts of these sizes.

    Example:

    >>> [tuple(part.shape) for part in split_last(ops.ones((2, 7)), [4, 3])]
    [(2, 4), (2, 3)]
    """
    if _is_torch(tensor):
        return tensor.split(sizes, dim=-1)
    cuts = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return ops.split(tensor, cuts, axis=-1)


def _is_torch(tensor: Any) -> bool:
    return keras.backend.backend() == "torch" and ops.is_tensor(tensor)
