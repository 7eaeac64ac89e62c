"""The update of Adam as one operation where the backend has one."""

from typing import Any

import keras


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
