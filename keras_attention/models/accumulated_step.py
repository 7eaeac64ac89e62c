"""One optimizer update from a batch that is processed in slices of its rows.

The steps do the same: count the real tokens of the whole update, form the mean of the gradients of
`compute_loss` over the slices, in which losses are divided by an equal share of the tokens, and apply it
once. Memory is that of one slice. PyTorch's is `torch_step`.
"""

from typing import Any

import keras
from keras import ops

from keras_attention.ops.dispatch import backend_choice
from keras_attention.training.losses import divided_by


def accumulated_train_step(model: keras.Model, steps: int, *args: Any) -> Any:
    """Return what Keras expects of `train_step`, with the gradient of a batch formed in so many slices.

    Slice a holds the rows a, a + steps, a + 2 steps, ...: on JAX, where the rows lie spread over the
    devices, so do those of each slice. The model's loss is a `keras_attention.LabelSmoothedCrossentropy`.
    """
    step = backend_choice("Gradient accumulation", tensorflow=_tensorflow, jax=_jax)
    return step(model, steps, *args)


def _tensorflow(model, steps, data):
    import tensorflow as tf

    weights = model.trainable_weights
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    rows = _check_rows(y, steps)
    even = tf.debugging.assert_equal(rows % steps, 0, message=_uneven(rows, steps))
    with tf.control_dependencies([even] if even is not None else []):
        slices = map_tensors(
            lambda t: tf.reshape(t, tf.concat([[rows // steps, steps], tf.shape(t)[1:]], 0)),
            (x, y, sample_weight),
        )
    count = token_count(model, y, sample_weight)

    def add_slice(index, total, gradients):
        x, y, sample_weight = map_tensors(lambda t: t[:, index], slices)
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            with divided_by(count / steps):
                value = model.compute_loss(x, y, y_pred, sample_weight, training=True)
            value = tf.cast(value, count.dtype) / steps  # Keras has made it float32.
            scaled = model.optimizer.scale_loss(value)
        new = tape.gradient(
            scaled, [w.value for w in weights], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        model.compute_metrics(x, y, y_pred, sample_weight)
        gradients = [a + tf.cast(b, a.dtype) for a, b in zip(gradients, new, strict=True)]
        return index + 1, total + value, gradients

    # A loop of the graph, which does not grow with the slices; one at a time, for their memory.
    _, total, gradients = tf.while_loop(
        lambda index, *_: index < steps,
        add_slice,
        (0, tf.zeros((), count.dtype), [tf.zeros(w.shape, w.dtype) for w in weights]),
        parallel_iterations=1,
    )
    # Keras' tracker takes the mean over the replicas; their shares are to be summed.
    replicas = tf.cast(model.distribute_strategy.num_replicas_in_sync, total.dtype)
    _loss_tracker(model).update_state(total * replicas, sample_weight=rows)
    model.optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return model.get_metrics_result()


def _jax(model, steps, state, data):
    import jax
    import jax.numpy as jnp

    trainable, non_trainable, optimizer_state, metrics_state = state
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    rows = _check_rows(y, steps)
    slices = map_tensors(
        lambda t: jnp.moveaxis(jnp.reshape(t, (rows // steps, steps, *t.shape[1:])), 1, 0),
        (x, y, sample_weight),
    )
    count = token_count(model, y, sample_weight)

    def slice_loss(trainable, non_trainable, metrics_state, *data):
        with divided_by(count / steps):
            scaled, (value, *others) = model.compute_loss_and_updates(
                trainable, non_trainable, metrics_state, *data, True, optimizer_state
            )
        return scaled / steps, (value / steps, *others)

    def add_slice(carry, data):
        total, gradients, non_trainable, metrics_state = carry
        (_, aux), new = jax.value_and_grad(slice_loss, has_aux=True)(
            trainable, non_trainable, metrics_state, *data
        )
        value, y_pred, non_trainable, metrics_state = aux
        gradients = [a + b for a, b in zip(gradients, new, strict=True)]
        x, y, sample_weight = data
        with keras.StatelessScope(_mapping(model.metrics_variables, metrics_state)) as scope:
            model.compute_metrics(x, y, y_pred, sample_weight)
        metrics_state = [scope.get_current_value(v) for v in model.metrics_variables]
        return (total + value, gradients, non_trainable, metrics_state), None

    zeros = [jnp.zeros_like(value) for value in trainable]
    start = (jnp.zeros((), count.dtype), zeros, non_trainable, metrics_state)
    (total, gradients, non_trainable, metrics_state), _ = jax.lax.scan(add_slice, start, slices)
    trainable, optimizer_state = model.optimizer.stateless_apply(
        optimizer_state, gradients, trainable
    )
    with keras.StatelessScope(_mapping(model.metrics_variables, metrics_state)) as scope:
        _loss_tracker(model).update_state(total, sample_weight=rows)
        logs = model.get_metrics_result()
    metrics_state = [scope.get_current_value(v) for v in model.metrics_variables]
    return logs, (trainable, non_trainable, optimizer_state, metrics_state)


def token_count(model: keras.Model, y: Any, sample_weight: Any) -> Any:
    """Return the real tokens of the whole update, in the dtype of the loss."""
    dtype = "float64" if model.compute_dtype == "float64" else "float32"
    return model.loss.token_count(y, sample_weight, dtype)


def map_tensors(function: Any, data: Any) -> Any:
    """Return `function` of every tensor; there may be no sample weights."""
    return keras.tree.map_structure(lambda t: None if t is None else function(t), data)


def _mapping(variables, values):
    return list(zip(variables, values, strict=True))


def _loss_tracker(model):
    return next(metric for metric in model.metrics if metric.name == "loss")


def check_rows(rows: int, steps: int) -> None:
    """Raise ValueError unless a batch of so many rows can be sliced."""
    if rows % steps:
        raise ValueError(_uneven(rows, steps))


def _check_rows(y, steps):
    """Return the number of rows, an integer or, if not known while tracing, a tensor."""
    rows = ops.shape(y)[0]
    if isinstance(rows, int):
        check_rows(rows, steps)
    return rows


def _uneven(rows, steps):
    rows = rows if isinstance(rows, int) else "their number"
    return (
        f"The rows of a batch ({rows} on each replica) must be a multiple of the {steps} accumulation "
        f"steps. Pass TokenBatches(num_replicas=replicas * {steps}), or another batch size."
    )
