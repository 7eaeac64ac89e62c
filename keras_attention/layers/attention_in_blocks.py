"""When and how attention with a window is computed in blocks."""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from keras_attention.layers.masks import GivenMasks, merge_masks
from keras_attention.ops.windowed_attention import saves_by_blocks, windowed_attention


def may_save_by_blocks(projected: Sequence[Any], window: int, attention_mask: Any = None) -> Any:
    """Whether a window is so much shorter than the sequence that blocks save work.

    A scalar tensor if the lengths are known only when the graph runs. An `attention_mask` that differs
    between queries is T x T in memory anyway, so it is not cut into blocks.
    """
    query, _, value = projected
    if len(query.shape) != 4:
        return False
    if attention_mask is not None and (
        len(attention_mask.shape) != 3 or attention_mask.shape[1] != 1
    ):
        return False
    length, attended = ops.shape(query)[1], ops.shape(value)[1]
    is_long = saves_by_blocks(length, window)
    if isinstance(length, int) and isinstance(attended, int):
        return is_long and length == attended
    return ops.logical_and(is_long, ops.equal(length, attended))


def attend_in_blocks(
    query: Any,
    key: Any,
    value: Any,
    attend: Callable[[Any, Any, Any, Any], Any],
    window: int,
    masks: GivenMasks,
    causal: bool,
) -> Any:
    """Compute `windowed_attention` with the masks of `MultiHeadAttention.call`."""
    query_mask, value_mask, key_mask, attention_mask = masks
    seen = None if attention_mask is None else attention_mask[:, 0]
    seen = merge_masks(value_mask, key_mask, seen)
    outputs = windowed_attention(query, key, value, attend, window, seen, causal)
    if query_mask is None:
        return outputs
    is_query = ops.cast(query_mask, "bool")[:, :, None, None]
    return ops.where(is_query, outputs, ops.zeros((), outputs.dtype))
