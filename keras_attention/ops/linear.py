"""Affine maps of the last axis as one two-dimensional matrix product."""

from typing import Any

from keras import ops

from keras_attention.ops.dispatch import fast_kernel
from keras_attention.ops.shapes import reshape


def linear(inputs: Any, kernel: Any, bias: Any = None, relu: bool = False) -> Any:
    """Return `inputs @ kernel + bias` over the last axis.

    The leading axes are folded into one first: a product of rank 2 with rank 2 is the form for
    which every backend calls its fastest GEMM, forward and backward.

    Args:
        inputs: Tensor of shape `(..., D)`.
        kernel: Tensor of shape `(D, F)`.
        bias: Optional tensor of shape `(F,)`.
        relu: Whether numbers below zero become zero.

    Returns:
        Tensor of shape `(..., F)`.
    """
    product = fast_kernel("linear", kernel.shape[-1]) or linear_reference
    outputs = product(fold_leading_axes(inputs), kernel, bias, relu)
    return unfold_leading_axes(outputs, inputs)


def linear_reference(inputs: Any, kernel: Any, bias: Any = None, relu: bool = False) -> Any:
    """The definition of `linear` for inputs `(rows, D)`, which the fast kernels must equal."""
    outputs = ops.matmul(inputs, kernel)
    if bias is not None:
        outputs = ops.add(outputs, bias)
    return ops.relu(outputs) if relu else outputs


def tied_projection(inputs: Any, table: Any) -> Any:
    """Return `inputs @ table^T`: the scores of every row of an embedding table.

    Args:
        inputs: Tensor of shape `(rows, D)`.
        table: Tensor of shape `(V, D)`, of the same dtype.

    Returns:
        Tensor of shape `(rows, V)`.
    """
    product = fast_kernel("tied_projection", inputs.shape[-1]) or tied_projection_reference
    return product(inputs, table)


def tied_projection_reference(inputs: Any, table: Any) -> Any:
    """The definition of `tied_projection`, which the fast kernels must equal."""
    return ops.matmul(inputs, ops.transpose(table))


def fold_leading_axes(inputs: Any) -> Any:
    """Reshape `(..., D)` to `(rows, D)`."""
    if len(inputs.shape) == 2:
        return inputs
    return reshape(inputs, (-1, inputs.shape[-1]))


def unfold_leading_axes(outputs: Any, like: Any) -> Any:
    """Reshape `(rows, F)` back to the leading axes of `like`, `(..., F)`."""
    if len(like.shape) == 2:
        return outputs
    return reshape(outputs, (*ops.shape(like)[:-1], outputs.shape[-1]))
