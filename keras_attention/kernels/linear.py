"""Affine maps of the last axis as one two-dimensional matrix product."""

from typing import Any

from keras import ops


def linear(inputs: Any, kernel: Any, bias: Any = None) -> Any:
    """Return `inputs @ kernel + bias` over the last axis.

    The leading axes are folded into one first: a product of rank 2 with rank 2 is the form for
    which every backend calls its fastest GEMM, forward and backward.

    Args:
        inputs: Tensor of shape `(..., D)`.
        kernel: Tensor of shape `(D, F)`.
        bias: Optional tensor of shape `(F,)`.

    Returns:
        Tensor of shape `(..., F)`.
    """
    outputs = ops.matmul(fold_leading_axes(inputs), kernel)
    if bias is not None:
        outputs = ops.add(outputs, bias)
    return unfold_leading_axes(outputs, inputs)


def fold_leading_axes(inputs: Any) -> Any:
    """Reshape `(..., D)` to `(rows, D)`."""
    if len(inputs.shape) == 2:
        return inputs
    return ops.reshape(inputs, (-1, inputs.shape[-1]))


def unfold_leading_axes(outputs: Any, like: Any) -> Any:
    """Reshape `(rows, F)` back to the leading axes of `like`, `(..., F)`."""
    if len(like.shape) == 2:
        return outputs
    return ops.reshape(outputs, (*ops.shape(like)[:-1], outputs.shape[-1]))
