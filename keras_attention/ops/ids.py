"""Token ids as tensors that can be compared, and how a graph says that one is wrong."""

from typing import Any

from keras import backend, ops

NARROW = {"bool", "int8", "uint8", "int16", "uint16"}


def comparable_ids(ids: Any) -> Any:
    """Return ids as a tensor that can be compared with any id: of narrow integers int32.

    In uint8, the size of a vocabulary of 256 would be 0.
    """
    ids = ops.convert_to_tensor(ids)
    return ops.cast(ids, "int32") if backend.standardize_dtype(ids.dtype) in NARROW else ids


def one_if_ids(ids: Any, vocabulary_size: int, dtype: str = "float32") -> Any:
    """Return 1 where ids are a vocabulary's, whole numbers from 0 to its last, else NaN."""
    ids = comparable_ids(ids)
    inside = ops.logical_and(ids >= 0, ids < vocabulary_size)
    if backend.is_float_dtype(backend.standardize_dtype(ids.dtype)):
        inside = ops.logical_and(inside, ops.equal(ids, ops.floor(ids)))
    return one_or_nan(inside, dtype)


def one_or_nan(condition: Any, dtype: str = "float32") -> Any:
    """Return 1 where a condition holds and NaN elsewhere.

    It is computed: NaN as a constant would be found in every healthy program by tools that search for it,
    such as `tf.debugging.enable_check_numerics`.
    """
    one = ops.cast(condition, dtype)
    return ops.divide(one, one)
