"""Rows of a table."""

from typing import Any

from keras import ops

from keras_attention.ops.dispatch import fast_kernel


def lookup(table: Any, token_ids: Any) -> Any:
    """Return the rows of a table.

    Args:
        table: Tensor or variable of shape `(V, D)`.
        token_ids: Integers of any shape `(...)`; negative ones count from the end.

    Returns:
        Tensor of shape `(..., D)`.
    """
    kernel = fast_kernel("lookup", table.shape[-1]) or lookup_reference
    return kernel(table, token_ids)


def lookup_reference(table: Any, token_ids: Any) -> Any:
    """The definition of `lookup`, which the fast kernels must equal."""
    return ops.take(table, token_ids, axis=0)
