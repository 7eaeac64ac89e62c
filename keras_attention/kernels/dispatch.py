"""Which fast kernels the running backend has."""

from collections.abc import Callable
from typing import Any

import keras


def fast_kernel(name: str) -> Callable[..., Any] | None:
    """Return the running backend's fast form of an operation, or None: then the reference serves.

    Fast forms exist for TensorFlow graphs, where they are compiled by XLA once for each shape. Eager
    calls keep to the reference: they are for looking at, and compiling would cost more than it saves.
    """
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    if tf.executing_eagerly() or tf.config.list_physical_devices("TPU"):
        return None
    from keras_attention.kernels import tensorflow_kernels

    return getattr(tensorflow_kernels, name, None)
