"""Attention masks: boolean, True = may attend; built and merged here and nowhere else."""

from typing import Any

from keras import ops


def padding_mask(token_ids: Any, pad_token_id: int = 0) -> Any:
    """Return True where `token_ids` `(B, S)` is a real token.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> ops.convert_to_numpy(padding_mask(np.array([[7, 1, 0]]))).tolist()
    [[True, True, False]]
    """
    token_ids = ops.convert_to_tensor(token_ids)
    return ops.not_equal(token_ids, ops.cast(pad_token_id, token_ids.dtype))


def causal_mask(target_length: Any, source_length: Any, start_index: Any = 0) -> Any:
    """Return a `(1, T, S)` mask in which position `start_index + t` sees the positions up to itself.

    Section 3.2.3 of the paper. `start_index` is the position of the first query: 0 in training, the
    position being decoded in decoding.

    Example:

    >>> from keras import ops
    >>> ops.convert_to_numpy(causal_mask(2, 3)).astype(int).tolist()
    [[[1, 0, 0], [1, 1, 0]]]
    """
    rows = ops.add(ops.arange(target_length, dtype="int32"), ops.cast(start_index, "int32"))
    columns = ops.arange(source_length, dtype="int32")
    return ops.less_equal(columns[None, None, :], rows[None, :, None])


def window_mask(target_length: Any, source_length: Any, window: int, start_index: Any = 0) -> Any:
    """Return a `(1, T, S)` band: positions less than `window` apart see each other.

    The restricted self-attention of Table 1 of the paper with neighbourhood size `r = 2 window - 1`.
    """
    rows = ops.add(ops.arange(target_length, dtype="int32"), ops.cast(start_index, "int32"))
    columns = ops.arange(source_length, dtype="int32")
    distance = ops.abs(ops.subtract(columns[None, None, :], rows[None, :, None]))
    return ops.less(distance, window)


def merge_masks(*masks: Any) -> Any:
    """Return the logical and of all masks that are not None, or None if there is none."""
    merged = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            merged = mask if merged is None else ops.logical_and(merged, mask)
    return merged


def first_given(*masks: Any) -> Any:
    """Return the first mask that is not None, or None."""
    return next((mask for mask in masks if mask is not None), None)


def given(**masks: Any) -> dict[str, Any]:
    """Return the masks that are not None: a layer of somebody else's may not know the others."""
    return {name: mask for name, mask in masks.items() if mask is not None}
