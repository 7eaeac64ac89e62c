"""Which fast kernels the running backend has."""

from collections.abc import Callable
from typing import Any

import keras

from keras_attention.utils.freed_memory import keep_freed_memory

if keras.backend.backend() == "torch":
    keep_freed_memory()  # before there are weights

# Below this width compiling costs more than it ever saves.
SMALLEST_WIDTH = 64


def fast_kernel(name: str, width: int) -> Callable[..., Any] | None:
    """Return the running backend's fast form of an operation, or None: then the reference serves.

    JAX always takes its own; PyTorch, too, except while it traces a program, which a compiler makes
    fast. Those for TensorFlow graphs are compiled by XLA once for each shape; eager calls keep to the
    reference there: they are for looking at, and compiling would cost more than it saves.

    Args:
        name: Name of the operation.
        width: Size of the last axis of its inputs.
    """
    if width < SMALLEST_WIDTH:
        return None
    if keras.backend.backend() == "jax":
        from keras_attention.ops.backends import jax as jax_kernels

        return getattr(jax_kernels, name, None)
    if keras.backend.backend() == "torch":
        return _torch_kernel(name)
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    if tf.executing_eagerly() or tf.config.list_physical_devices("TPU"):
        return None
    from keras_attention.ops.backends import tensorflow as tensorflow_kernels

    return getattr(tensorflow_kernels, name, None)


def _torch_kernel(name: str) -> Callable[..., Any] | None:
    import torch

    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return None
    from keras_attention.ops.backends import torch as torch_kernels

    return getattr(torch_kernels, name, None)
