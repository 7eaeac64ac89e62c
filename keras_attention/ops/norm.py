"""The norm of a gradient."""

from collections.abc import Sequence
from typing import Any

from keras_attention.ops.dispatch import operation


@operation
def global_norm(gradients: Sequence[Any]) -> Any:
    """Compute the L2 norm of all gradients together, as if they were one long vector.

    Args:
        gradients: Tensors of any shapes and float dtypes; on TensorFlow also `tf.IndexedSlices`.

    Returns:
        A scalar, float32, of float64 gradients float64; infinite or NaN if one of the numbers is, or
        the norm is above the range.

    Example:

    >>> import numpy as np
    >>> float(global_norm([np.array([3.0]), np.array([[0.0, 4.0]])]))
    5.0
    """
