"""Adam's update as one fused operation, on the backends that have one."""

from collections.abc import Sequence
from typing import Any

from keras import ops


def tensorflow_adam_update(
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
    """Update a TensorFlow variable and its moments in one pass over memory, if that is possible.

    The formula is Keras' own, `m * lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)`.

    Args:
        variable: The `tf.Variable` to update.
        momentum: Its first moment, a Keras variable.
        velocity: Its second moment, a Keras variable.
        gradient: Dense gradient.
        learning_rate: Scalar.
        step: Number of this update, counted from 1.
        beta_1, beta_2, epsilon: Adam's constants.

    Returns:
        True if the variable was updated; False if there is no fused operation for it.
    """
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


def torch_adam_updates(
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
    """Update all PyTorch variables and their moments in one call, without waiting for the device.

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
        True if this call handled the update; False if there is no fused operation for the variables.
    """
    import torch
    from torch.optim.adam import adam

    values = [variable.value for variable in variables]
    if any(v.device.type not in ("cpu", "cuda") or v.dtype != torch.float32 for v in values):
        return False
    device = values[0].device
    if device.type == "cpu" and not is_good:
        return True
    # Keras adds epsilon to the uncorrected root of v, PyTorch to the corrected one. So Keras' bias
    # corrections go into the rate, and PyTorch gets a step so large that its own corrections are 1.
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
