"""Adam's update in as few passes over memory as the backend allows, and the norm of a gradient."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


def global_norm(gradients: Sequence[Any]) -> Any:
    """The L2 norm of all gradients together, as if they were one long vector.

    Args:
        gradients: Tensors of any shapes and float dtypes; on TensorFlow also `tf.IndexedSlices`.

    Returns:
        A scalar, float32; infinite or NaN if one of the numbers is, or the norm is above float32.

    Example:

    >>> import numpy as np
    >>> float(global_norm([np.array([3.0]), np.array([[0.0, 4.0]])]))
    5.0
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        # l2_loss is half the sum of squares, formed without writing the squares to memory.
        halves = [tf.nn.l2_loss(tf.cast(tf.convert_to_tensor(g), "float32")) for g in gradients]
        return tf.sqrt(2.0 * tf.add_n(halves))
    if backend == "torch":
        import torch

        tensors = [torch.as_tensor(gradient).float() for gradient in gradients]
        if any(tensor.device.type != "cpu" for tensor in tensors):
            return torch.nn.utils.get_total_norm(tensors)
        # On a CPU a product with itself is formed faster than a norm.
        flat = [tensor.reshape(-1) for tensor in tensors]
        return torch.stack([torch.dot(x, x) for x in flat]).sum().sqrt()
    squares = [ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in gradients]
    return ops.sqrt(sum(squares))


def fused_adam_update(
    variable: Any,
    momentum: Any,
    velocity: Any,
    gradient: Any,
    learning_rate: Any,
    step: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> bool:
    """Update a variable and its moments in place in one pass over memory, if that is possible.

    The formula is Keras' own, `m * lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)`.

    Args:
        variable: The variable to update; on TensorFlow a `tf.Variable`.
        momentum: Its first moment, a Keras variable.
        velocity: Its second moment, a Keras variable.
        gradient: Dense gradient.
        learning_rate: Scalar.
        step: Number of this update, counted from 1.
        beta_1, beta_2, epsilon: Adam's constants.

    Returns:
        False if the backend has no such operation and nothing was done.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    is_plain = isinstance(variable, tf.Variable) and not isinstance(gradient, tf.IndexedSlices)
    if not is_plain or hasattr(variable, "values"):  # A mirrored variable has no single handle.
        return False
    dtype = variable.dtype
    step = tf.cast(step, dtype)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=tf.pow(tf.constant(beta_1, dtype), step),
        beta2_power=tf.pow(tf.constant(beta_2, dtype), step),
        lr=tf.cast(learning_rate, dtype),
        beta1=tf.constant(beta_1, dtype),
        beta2=tf.constant(beta_2, dtype),
        epsilon=tf.constant(epsilon, dtype),
        grad=tf.cast(gradient, dtype),
        use_locking=True,
    )
    return True


def fused_adam_updates(
    variables: Sequence[Any],
    momentums: Sequence[Any],
    velocities: Sequence[Any],
    gradients: Sequence[Any],
    learning_rate: Any,
    step: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    is_good: Any,
) -> bool:
    """`fused_adam_update` of all variables in one call, for PyTorch, which waits for no device.

    Args:
        variables: Keras variables.
        momentums: Their first moments, Keras variables.
        velocities: Their second moments, Keras variables.
        gradients: Dense gradients of the variables.
        learning_rate: Scalar.
        step: Number of this update, counted from 1.
        beta_1, beta_2, epsilon: Adam's constants.
        is_good: Boolean scalar tensor: where it is False, nothing changes.

    Returns:
        False if the backend has no such operation for these variables and nothing was done.
    """
    if keras.backend.backend() != "torch":
        return False
    import torch
    from torch.optim.adam import adam

    values = [variable.value for variable in variables]
    if any(v.device.type not in ("cpu", "cuda") or v.dtype != torch.float32 for v in values):
        return False
    device = values[0].device
    if device.type == "cpu" and not is_good:
        return True
    # In Keras' formula epsilon is added to an uncorrected root. So the corrections go into the rate,
    # and PyTorch, which would add epsilon to a corrected one, is told of a step so late that its own
    # corrections are 1.
    step = ops.convert_to_tensor(step).double()
    rate = ops.convert_to_tensor(learning_rate).double()
    rate = rate * torch.sqrt(1.0 - beta_2**step) / (1.0 - beta_1**step)
    late = torch.full((len(values),), 1e30, device=device).unbind()
    adam(
        values,
        [gradient.to(torch.float32) for gradient in gradients],
        [momentum.value for momentum in momentums],
        [velocity.value for velocity in velocities],
        [],
        list(late),
        fused=True,
        found_inf=None if device.type == "cpu" else torch.logical_not(is_good).float(),
        amsgrad=False,
        beta1=beta_1,
        beta2=beta_2,
        lr=rate.float() if device.type != "cpu" else float(rate),
        weight_decay=0.0,
        eps=epsilon,
        maximize=False,
    )
    return True
