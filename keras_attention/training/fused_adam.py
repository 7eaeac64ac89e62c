"""Adam's update as one fused operation, on the backends that have one."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras import ops


class AdamStep(NamedTuple):
    """What an update of Adam needs beside weights and gradients; `number` counts from 1."""

    learning_rate: Any
    number: Any
    beta_1: float
    beta_2: float
    epsilon: float


def tensorflow_adam_update(
    variable: Any, momentum: Any, velocity: Any, gradient: Any, step: AdamStep
) -> bool:
    """Update a TensorFlow variable and its moments, Keras variables, in one pass over memory.

    The formula is Keras' own, `m * lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)`.
    Returns False if there is no fused operation for the variable, and then changes nothing.
    """
    import tensorflow as tf

    is_plain = isinstance(variable, tf.Variable) and not isinstance(gradient, tf.IndexedSlices)
    if not is_plain or hasattr(variable, "values"):  # A mirrored variable has no single handle.
        return False
    dtype = variable.dtype
    number = tf.cast(step.number, dtype)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=tf.pow(tf.constant(step.beta_1, dtype), number),
        beta2_power=tf.pow(tf.constant(step.beta_2, dtype), number),
        lr=tf.cast(step.learning_rate, dtype),
        beta1=tf.constant(step.beta_1, dtype),
        beta2=tf.constant(step.beta_2, dtype),
        epsilon=tf.constant(step.epsilon, dtype),
        grad=tf.cast(gradient, dtype),
        use_locking=True,
    )
    return True


@functools.cache
def _late_steps(number: int, device: Any) -> list[Any]:
    """Return the numbers of a step so large that PyTorch's bias corrections are 1, also one later."""
    import torch

    return list(torch.full((number,), 1e30, device=device).unbind())


def torch_adam_updates(
    variables: Sequence[Any],
    momentums: Sequence[Any],
    velocities: Sequence[Any],
    gradients: Sequence[Any],
    step: AdamStep,
    is_good: Any,
) -> bool:
    """Update Keras variables and their moments on PyTorch in one call, without waiting for the device.

    Where the boolean scalar `is_good` is False, nothing changes. Returns False if there is no fused
    operation.
    """
    import torch
    from torch.optim.adam import adam

    from keras_attention.ops.backends.torch_known import tensor_of

    values = [tensor_of(variable) for variable in variables]
    if any(v.device.type not in ("cpu", "cuda") or v.dtype != torch.float32 for v in values):
        return False
    device = values[0].device
    if device.type == "cpu" and not is_good:
        return True
    # Keras adds epsilon to the uncorrected root of v, PyTorch to the corrected one. So Keras' bias
    # corrections go into the rate, and PyTorch gets a step so large that its own corrections are 1.
    number = ops.convert_to_tensor(step.number).double()
    rate = ops.convert_to_tensor(step.learning_rate).double()
    rate = rate * torch.sqrt(1.0 - step.beta_2**number) / (1.0 - step.beta_1**number)
    adam(
        values,
        [gradient.to(torch.float32) for gradient in gradients],
        [tensor_of(momentum) for momentum in momentums],
        [tensor_of(velocity) for velocity in velocities],
        [],
        _late_steps(len(values), device),
        fused=True,
        found_inf=None if device.type == "cpu" else torch.logical_not(is_good).float(),
        amsgrad=False,
        beta1=step.beta_1,
        beta2=step.beta_2,
        lr=rate.float() if device.type != "cpu" else float(rate),
        weight_decay=0.0,
        eps=step.epsilon,
        maximize=False,
    )
    return True
