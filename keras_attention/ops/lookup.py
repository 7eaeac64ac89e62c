"""Rows of a table."""

from typing import Any

from keras_attention.ops.dispatch import operation


@operation
def lookup(table: Any, token_ids: Any) -> Any:
    """Return the rows of a table.

    Args:
        table: Tensor or variable of shape `(V, D)`.
        token_ids: Integers of any shape `(...)`; negative ones count from the end.

    Returns:
        Tensor of shape `(..., D)`.
    """
