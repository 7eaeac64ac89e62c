"""Restricted attention in blocks: time and memory grow with T x window instead of T x T."""

from collections.abc import Callable
from typing import Any

from keras import ops

# Smaller blocks make products of matrices too small to be fast.
SMALLEST_BLOCK = 64


def window_block(window: int) -> int:
    """How many positions a block has: no less than the window, so that neighbouring blocks suffice."""
    return max(window, SMALLEST_BLOCK)


def saves_by_blocks(length: Any, window: int) -> Any:
    """Whether a sequence is so much longer than the window that blocks save work.

    The length may be an int, an array or a tensor.
    """
    return length > 3 * window_block(window)


def windowed_attention(
    query: Any,
    key: Any,
    value: Any,
    attend: Callable[[Any, Any, Any, Any], Any],
    window: int,
    mask: Any = None,
    causal: bool = False,
) -> Any:
    """Return self-attention in which positions less than `window` apart see each other, (B, T, N, V).

    The restricted self-attention of section 4 of the paper (Table 1, neighbourhood r = 2 window - 1).
    Queries are cut into blocks, each of which attends to its own block and the two beside it, by
    `attend(query, key, value, mask)`. To a position with False in `mask` (B, T), or (1, T), nobody attends.
    """
    batch, length = ops.shape(query)[:2]
    block = window_block(window)
    num_blocks = -(-length // block)
    if mask is None:
        mask = ops.ones((1, length), "bool")
    outputs = attend(
        _own_blocks(query, num_blocks, block),
        _seen_blocks(key, num_blocks, block, causal),
        _seen_blocks(value, num_blocks, block, causal),
        _blocked_mask(mask, batch, num_blocks, block, window, causal),
    )
    heads, width = value.shape[2:]
    outputs = ops.reshape(outputs, (batch, num_blocks * block, heads, width))
    return outputs[:, :length]


def _own_blocks(tensor: Any, num_blocks: int, block: int) -> Any:
    """`(B, T, ...)` to `(B * blocks, block, ...)`, the last block padded with zeros."""
    padding = num_blocks * block - ops.shape(tensor)[1]
    tensor = ops.pad(tensor, [(0, 0), (0, padding)] + [(0, 0)] * (len(tensor.shape) - 2))
    return ops.reshape(tensor, (-1, block, *tensor.shape[2:]))


def _seen_blocks(tensor: Any, num_blocks: int, block: int, causal: bool) -> Any:
    """`(B, T, ...)` to `(B * blocks, 3 * block, ...)`: the block before, the own and the one behind."""
    after = num_blocks * block - ops.shape(tensor)[1] + (0 if causal else block)
    rest = tensor.shape[2:]
    tensor = ops.pad(tensor, [(0, 0), (block, after)] + [(0, 0)] * len(rest))
    tensor = ops.reshape(tensor, (-1, num_blocks + (1 if causal else 2), block, *rest))
    shifts = range(2 if causal else 3)
    seen = [tensor[:, shift : shift + num_blocks] for shift in shifts]
    seen = ops.concatenate(seen, axis=2)
    return ops.reshape(seen, (-1, len(shifts) * block, *rest))


def _blocked_mask(
    mask: Any, batch: Any, num_blocks: int, block: int, window: int, causal: bool
) -> Any:
    """Who may attend to whom, `(B * blocks, 1, block, 2 or 3 * block)`."""
    mask = ops.broadcast_to(ops.cast(mask, "bool"), (batch, ops.shape(mask)[1]))
    seen = _seen_blocks(ops.cast(mask, "int32"), num_blocks, block, causal)
    rows = ops.arange(block, dtype="int32")[:, None] + block
    columns = ops.arange(seen.shape[-1], dtype="int32")[None, :]
    near = ops.less(ops.abs(columns - rows), window)
    if causal:
        near = ops.logical_and(near, ops.less_equal(columns, rows))
    return ops.logical_and(ops.cast(seen, "bool")[:, None, None, :], near[None, None])
