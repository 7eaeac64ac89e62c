"""Early errors for token ids outside a model's vocabulary, at no cost inside compiled graphs."""

import reprlib
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from keras_attention.utils import checks

INPUT_NAMES = SOURCE, TARGET = ("encoder_token_ids", "decoder_token_ids")
ALIGNMENTS = "alignments"  # which may stand beside them in training; no ids
ATTENTIONS = ("encoder", "decoder", "cross")


def check_token_ids(
    data: Any, vocabulary_size: int | Mapping[str, int], max_length: int | None = None
) -> None:
    """Refuse ids outside the vocabulary, before a backend fails with an obscure error or, like JAX, does not.

    Checked are NumPy arrays and lists of numbers, also inside dicts, lists and tuples, and objects with
    the attributes `vocabulary_size` and `longest`, such as `TokenBatches`. Not checked are float arrays
    with one axis, which are sample weights, and tensors: they may have no values yet, and reading them
    would make the device wait. In a tensor, an id outside the vocabulary gives NaN.

    The size is one number, or one for each of `INPUT_NAMES`; what has no such name, as labels have none, is
    checked against the target's. `max_length` is the number of learned positions.
    """
    if not isinstance(vocabulary_size, Mapping):
        vocabulary_size = dict.fromkeys(INPUT_NAMES, vocabulary_size)
    _check("The batch", data, vocabulary_size, max_length)


def _check(
    name: str, value: Any, sizes: Mapping[str, int], max_length: int | None, side: str = TARGET
) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            if key != ALIGNMENTS:
                _check(repr(key), part, sizes, max_length, SOURCE if key == SOURCE else side)
        ids = {key: value[key] for key in INPUT_NAMES if isinstance(value.get(key), np.ndarray)}
        rows = {key: len(part) for key, part in ids.items()}
        if len({*rows.values()}) > 1:
            raise ValueError(
                f"{name} must have the same number of rows in each array. Received: {rows}"
            )
    elif isinstance(value, (list, tuple)) and value and all(isinstance(v, Real) for v in value):
        _check(name, np.asarray([value]), sizes, max_length, side)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check(name, part, sizes, max_length, side)
    elif isinstance(value, np.ndarray):
        checks.check_byte_order(name.strip("'"), value)
        is_float = np.issubdtype(value.dtype, np.floating)
        if value.dtype.kind not in "biuf" or value.ndim == 0:
            raise ValueError(
                f"{name} must hold token ids, which are integers, in rows. Received: an array of dtype "
                f"{value.dtype} and shape {value.shape}"
            )
        if value.size and (np.issubdtype(value.dtype, np.integer) or is_float and value.ndim > 1):
            _check_values(name, value, sizes[side])
        _check_length(value.shape[1] if value.ndim == 2 else 0, max_length)
    elif isinstance(getattr(value, "vocabulary_size", None), int):
        size = value.vocabulary_size
        theirs = {SOURCE: size, TARGET: getattr(value, "target_vocabulary_size", size)}
        for side, size in theirs.items():
            if size > sizes[side]:
                raise ValueError(
                    f"The batches were made by a tokenizer of {size} tokens; the model's vocabulary "
                    f"has {sizes[side]}. {_ADVICE}"
                )
        _check_length(getattr(value, "longest", 0), max_length)


_ADVICE = (
    "The ids probably come from another tokenizer. Build the model with "
    "`vocabulary_size=tokenizer.vocabulary_size`, of the tokenizer that made them."
)


def _check_values(name: str, ids: np.ndarray, vocabulary_size: int) -> None:
    least, most, is_whole = ids.min().item(), ids.max().item(), np.equal(ids, np.floor(ids))
    if not (0 <= least and most < vocabulary_size):
        raise ValueError(
            f"{name} holds ids outside the model's vocabulary of {vocabulary_size} tokens (ids 0 to "
            f"{vocabulary_size - 1}). Received: ids from {least} to {most}. {_ADVICE}"
        )
    if not is_whole.all():
        raise ValueError(
            f"{name} must hold token ids, which are integers. Received: {ids[~is_whole][0].item()}"
        )


def _check_length(length: int, max_length: int | None) -> None:
    if max_length is not None and length > max_length:
        raise ValueError(
            f"The model has learned positions for {max_length} tokens. Received: a sequence of {length} "
            f"tokens. Shorten it, or build the model with `max_length={length}`."
        )


def check_inputs(
    inputs: Any, vocabulary_size: int | Mapping[str, int], max_length: int | None = None
) -> None:
    """Refuse inputs of a `Transformer` that are no dict of source and target ids; see `check_token_ids`."""
    if not isinstance(inputs, dict) or any(name not in inputs for name in INPUT_NAMES):
        received = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
        raise ValueError(
            "`inputs` must be a dict with the keys 'encoder_token_ids' and 'decoder_token_ids'. "
            f"Received: {received}"
        )
    for name in INPUT_NAMES:
        if not hasattr(inputs[name], "shape"):
            raise ValueError(
                f"{name!r} must be an array or a tensor. Received: {type(inputs[name]).__name__}"
            )
    _check_rows(*(tuple(inputs[name].shape) for name in INPUT_NAMES))
    check_token_ids(inputs, vocabulary_size, max_length)


def check_sequences(name: str, ids: Any, axes: str) -> Any:
    """Return token ids of two axes as an array or a tensor; raise a ValueError for anything else."""
    ids = checks.check_numbers(name, ids, axes)
    if (checks.static_shape(ids) or (1, 1))[1] == 0:
        raise ValueError(f"{name!r} must have a token in each row. Received: shape {ids.shape}")
    return ids


def check_pair(source: Any, target: Any) -> tuple[Any, Any]:
    """Return token ids (B, S) and (B, T) as arrays or tensors; raise a ValueError unless they are such."""
    source = check_sequences(INPUT_NAMES[0], source, "BS")
    target = check_sequences(INPUT_NAMES[1], target, "BT")
    _check_rows(*(tuple(ids.shape) for ids in (source, target)))
    return source, target


def _check_rows(source: tuple[Any, ...], target: tuple[Any, ...]) -> None:
    """Raise a ValueError unless token ids of these shapes, of two axes, can be pairs of sentences."""
    rows = {size for size in (*source[:1], *target[:1]) if isinstance(size, int)}
    if len(rows) > 1 or 0 in (*source[1:], *target[1:]):
        raise ValueError(
            "'encoder_token_ids' and 'decoder_token_ids' must have the same number of rows, one for each "
            f"pair of sentences, and a token in each row. Received: shapes {source} and {target}"
        )


def check_head_masks(head_masks: Any, layers: Mapping[str, int]) -> None:
    """Raise a ValueError unless a value has None or a mask for each layer, of any of the attentions."""
    for kind, masks in checks.check_has("head_masks", head_masks, "a dict", "items").items():
        checks.check_choice("head_masks", kind, ATTENTIONS)
        if kind not in layers:
            raise ValueError(
                f"`head_masks[{kind!r}]`: the model's decoder has SSRUs in place of self-attention, which "
                f"have no heads. There are those of {', '.join(layers)}."
            )
        if not hasattr(masks, "__len__") or len(masks) != layers[kind]:
            raise ValueError(
                f"`head_masks[{kind!r}]` must be a list with None or a mask (B, N) for each of "
                f"{layers[kind]} layers. Received: {reprlib.repr(masks)}"
            )
