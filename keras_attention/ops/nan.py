"""How a graph, which cannot raise, says that an input is wrong."""

from typing import Any

from keras import ops


def one_or_nan(condition: Any, dtype: str = "float32") -> Any:
    """Return 1 where a condition holds and NaN elsewhere.

    It is computed: NaN as a constant would be found in every healthy program by tools that search for it,
    such as `tf.debugging.enable_check_numerics`.
    """
    one = ops.cast(condition, dtype)
    return ops.divide(one, one)
