"""Gradients on whichever backend runs."""

import keras
import numpy as np
from keras import ops


def compiled(function):
    """A function of tensors as a graph on TensorFlow, whose kernels serve no eager calls."""
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    return tf.function(function, autograph=False)


def gradients(function, *arrays):
    """`function` of arrays to a scalar tensor; returns its gradients as float32 NumPy arrays."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        inputs = [tf.constant(array) for array in arrays]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = function(*inputs)
        found = tape.gradient(total, inputs)
    elif backend == "jax":
        import jax

        found = jax.grad(function, argnums=tuple(range(len(arrays))))(*map(np.asarray, arrays))
    else:
        import torch

        inputs = [ops.convert_to_tensor(array).requires_grad_() for array in arrays]
        found = torch.autograd.grad(function(*inputs), inputs)
    return [ops.convert_to_numpy(ops.cast(gradient, "float32")) for gradient in found]
