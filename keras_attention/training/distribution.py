"""What training needs to know about replicas; the one file that names `tf.distribute`."""

from typing import Any

import keras


def sum_over_replicas(value: Any) -> Any:
    """Sum a scalar over the replicas of the `tf.distribute` strategy that runs the step, if any.

    On JAX, arrays that are sharded over devices are summed as a whole already; on PyTorch and outside
    of a strategy there is one replica.
    """
    if keras.backend.backend() != "tensorflow":
        return value
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.convert_to_tensor(value))
