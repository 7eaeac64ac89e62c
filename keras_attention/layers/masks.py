"""Attention masks, built and merged only here. All are boolean, True = may attend."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from keras_attention.ops.ids import one_or_nan
from keras_attention.utils.checks import check_numbers, static_shape


def padding_mask(token_ids: Any, pad_token_id: int = 0) -> Any:
    """Return True where `token_ids` `(B, S)` is a real token."""
    return ops.not_equal(ops.cast(token_ids, "int32"), pad_token_id)


def causal_mask(target_length: Any, source_length: Any, start_index: Any = 0) -> Any:
    """Return a `(1, T, S)` mask in which position `start_index + t` sees the positions up to itself.

    Section 3.2.3 of the paper. `start_index` is the position of the first query: 0 in training, the
    position being decoded in decoding.
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


def check_mask(name: str, mask: Any, axes: str, sizes: Mapping[str, int | None]) -> Any:
    """Return a mask, of a list an array; refuse one that does not fit, and additive masks.

    The 0 of an additive mask means "may attend", a boolean mask's 0 means the opposite. Only the values of
    NumPy arrays and lists are looked at. A tensor may have no values yet: see `nan_if_additive`. The mask
    must broadcast to `axes`, whose letters may have known `sizes`; `"BNTS"` also stands for (B, T, S), and ""
    for any axes.

    >>> check_mask("attention_mask", [[0.0, -1e9]], "BNTS", {})
    Traceback (most recent call last):
    ValueError: `attention_mask` must be boolean (True where a query may attend), or hold only 0 and 1. ...
    >>> check_mask("value_mask", np.ones((2, 3), bool), "BS", {"B": 2, "S": 5})
    Traceback (most recent call last):
    ValueError: `value_mask` must broadcast to (B, S) = (2, 5). Received: value_mask of shape (2, 3)
    """
    mask = check_numbers(name, mask)
    is_array, is_of_heads = isinstance(mask, np.ndarray), "head" in name
    if is_array and not is_of_heads and not np.isin(mask, (0, 1)).all():
        raise ValueError(
            f"`{name}` must be boolean (True where a query may attend), or hold only 0 and 1. "
            f"Received: values from {mask.min():g} to {mask.max():g}. If it is an additive "
            f"mask, pass {name} == 0, else {name} != 0."
        )
    shape = static_shape(mask)
    if shape is None or not axes:
        return mask
    letters = axes.replace("N", "") if len(shape) == 3 else axes
    fits = len(shape) == len(letters) or (len(axes), len(shape)) == (4, 2)
    for letter, size in zip(letters[::-1], shape[::-1], strict=False):
        ones = () if is_of_heads and letter == "N" else (1,)
        fits &= size in (None, *ones) or sizes.get(letter) in (None, size)
    if not fits:
        wanted = ", ".join(str(sizes.get(letter)) for letter in axes)
        other = ", or have the shape (B, T, S)" if len(axes) == 4 else ""
        raise ValueError(
            f"`{name}` must broadcast to ({', '.join(axes)}) = ({wanted}){other}. Received: {name} of "
            f"shape {shape}"
        )
    return mask


def nan_if_additive(outputs: Any, *masks: Any) -> Any:
    """Return `outputs`, or NaN if a mask holds other numbers than 0 and 1: a graph cannot raise."""
    for mask in masks:
        if mask is not None and ops.dtype(mask) != "bool":
            is_boolean = ops.all(ops.logical_or(ops.equal(mask, 0), ops.equal(mask, 1)))
            outputs = ops.multiply(outputs, one_or_nan(is_boolean, outputs.dtype))
    return outputs


def merge_masks(*masks: Any) -> Any:
    """Return the logical and of all masks that are not None, or None if all are None."""
    merged = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            merged = mask if merged is None else ops.logical_and(merged, mask)
    return merged


def combined_mask(
    target_length: Any,
    source_length: Any,
    given: tuple[Any, Any, Any, Any],
    is_causal: bool = False,
    window: int | None = None,
    start_index: Any = 0,
) -> Any:
    """Merge all masks of an attention layer into one `(B, T, S)`, or None if nothing is masked.

    Given are the masks of query `(B, T)`, value and key `(B, S)`, and the attention mask `(B, T, S)` or what
    broadcasts to it, or `(B, N, T, S)`, as the result is then; each of them or None. Masks of inputs of a
    higher rank have its other axes before the last, as in Keras. `start_index` is the position of the first
    query.
    """
    lengths = target_length, source_length
    query_mask, value_mask, key_mask, attention_mask = given
    merged = merge_masks(
        None if query_mask is None else query_mask[..., None],
        None if value_mask is None else value_mask[..., None, :],
        None if key_mask is None else key_mask[..., None, :],
        causal_mask(*lengths, start_index) if is_causal else None,
        window_mask(*lengths, window, start_index) if window is not None else None,
    )
    is_of_heads = attention_mask is not None and len(attention_mask.shape) == 4
    if is_of_heads and merged is not None and len(merged.shape) == 3:
        merged = ops.expand_dims(merged, axis=1)
    return merge_masks(merged, attention_mask)
