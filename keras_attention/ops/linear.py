"""Affine maps of the last axes as one two-dimensional matrix product."""

from collections.abc import Sequence
from typing import Any

from keras_attention.ops.dispatch import operation


@operation
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


@operation
def joined_linear(inputs: Any, kernels: Sequence[Any], biases: Sequence[Any] | None = None) -> Any:
    """`linear(inputs, kernel, bias)` for several kernels, in one product where that is faster.

    Args:
        inputs: Tensor of shape `(..., D)`.
        kernels: Tensors of shape `(D, N, K)`, with an N in common; of one dtype.
        biases: Optional tensors of shape `(N, K)`, one for each kernel.

    Returns:
        A list of tensors of shape `(..., N, K)`.
    """


@operation
def tied_projection(inputs: Any, table: Any) -> Any:
    """Return `inputs @ table^T`: the scores of every row of an embedding table.

    Args:
        inputs: Tensor of shape `(rows, D)`.
        table: Tensor of shape `(V, D)`, of the same dtype.

    Returns:
        Tensor of shape `(rows, V)`.
    """
