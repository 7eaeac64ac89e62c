"""New shapes without Keras' bookkeeping, which on PyTorch took a tenth of the time of a small update."""

from typing import Any

from keras import ops

from keras_attention.ops.operations import reshape


def fold_leading_axes(inputs: Any) -> Any:
    """Reshape `(..., D)` to `(rows, D)`."""
    return inputs if len(inputs.shape) == 2 else reshape(inputs, (-1, inputs.shape[-1]))


def unfold_leading_axes(outputs: Any, like: Any) -> Any:
    """Reshape `(rows, F)` back to the leading axes of `like`, `(..., F)`."""
    if len(like.shape) == 2:
        return outputs
    return reshape(outputs, (*ops.shape(like)[:-1], outputs.shape[-1]))
