"""One optimizer update from a batch that is processed in slices of its rows, on each backend.

The three steps do the same: count the real tokens of the whole update, sum over the slices the
gradients of `sum_of_losses(slice) / count`, apply the sum once. Memory is that of one slice.
"""

from typing import Any

import keras
from keras import ops

from keras_attention.models.compiled_loss import loss_and_logs
from keras_attention.ops.dispatch import backend_choice
from keras_attention.training.processes import process_count


def accumulated_train_step(model: keras.Model, steps: int, *args: Any) -> Any:
    """Return what Keras expects of `train_step`, with the gradient of a batch formed in so many slices.

    Slice a holds the rows a, a + steps, a + 2 steps, ...: on JAX, where the rows lie spread over the
    devices, so do those of each slice. The model's loss has `token_sum` and `token_count`, see
    `keras_attention.LabelSmoothedCrossentropy`; losses of layers are not supported.
    """
    step = backend_choice("Gradient accumulation", tensorflow=_tensorflow, jax=_jax, torch=_torch)
    return step(model, steps, *args)


def _tensorflow(model, steps, data):
    import tensorflow as tf

    weights = model.trainable_weights
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    rows = _check_rows(y, steps)
    even = tf.debugging.assert_equal(rows % steps, 0, message=_uneven(rows, steps))
    with tf.control_dependencies([even] if even is not None else []):
        slices = _map(
            lambda t: tf.reshape(t, tf.concat([[rows // steps, steps], tf.shape(t)[1:]], 0)),
            (x, y, sample_weight),
        )
    count = _token_count(model, y, sample_weight)

    def add_slice(index, total, gradients):
        x, y, sample_weight = _map(lambda t: t[:, index], slices)
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            value = model.sum_of_losses(x, y, y_pred, sample_weight) / count
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
    slices = _map(
        lambda t: jnp.moveaxis(jnp.reshape(t, (rows // steps, steps, *t.shape[1:])), 1, 0),
        (x, y, sample_weight),
    )
    count = _token_count(model, y, sample_weight)

    def slice_loss(trainable, non_trainable, x, y, sample_weight):
        y_pred, non_trainable = model.stateless_call(trainable, non_trainable, x, training=True)
        value = model.sum_of_losses(x, y, y_pred, sample_weight) / count
        with keras.StatelessScope(_mapping(model.optimizer.variables, optimizer_state)):
            scaled = model.optimizer.scale_loss(value)
        return scaled, (value, y_pred, non_trainable)

    def add_slice(carry, data):
        total, gradients, non_trainable, metrics_state = carry
        (_, (value, y_pred, non_trainable)), new = jax.value_and_grad(slice_loss, has_aux=True)(
            trainable, non_trainable, *data
        )
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


def _torch(model, steps, data):
    import torch

    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    rows = _check_rows(y, steps)
    count = _token_count(model, y, sample_weight)
    model.zero_grad()
    total = 0.0
    for index in range(steps):
        part = _map(lambda t: t[index::steps], (x, y, sample_weight))  # noqa: B023
        y_pred = model(part[0], training=True)
        value = model.sum_of_losses(part[0], part[1], y_pred, part[2]) / count
        model.optimizer.scale_loss(value).backward()  # Adds to the gradients of the slices before.
        total = total + value.detach()
        with torch.no_grad():
            model.compute_metrics(part[0], part[1], y_pred.detach(), part[2])
    _loss_tracker(model).update_state(total, sample_weight=rows)
    weights = model.trainable_weights
    with torch.no_grad():
        model.optimizer.apply([weight.value.grad for weight in weights], weights)
    return model.get_metrics_result()


class KnownInFit:
    """What does not change within `fit` on PyTorch: a model of many layers takes long to say it anew.

    As on the other backends, another `trainable` counts from the next `fit` on.

    Attributes:
        weights: The trainable weights.
        has_no_losses: Whether model, layers and weights add no loss of their own, as a user's might.
        metrics: The metrics, from the first step on, which makes some.
        tensors: The tensors of all variables by their `id`; none if they are cast when they are read.
    """

    metrics: list[Any] | None = None

    def __init__(self, model: keras.Model) -> None:
        self.weights = model.trainable_weights
        layers = list(model._flatten_layers())  # the model, too
        self.has_no_losses = not any(weight.regularizer for weight in self.weights) and all(
            type(layer).__module__.partition(".")[0] in ("keras", "keras_attention")
            and layer.activity_regularizer is None
            for layer in layers
        )
        is_cast = any(layer.compute_dtype != layer.variable_dtype for layer in layers)
        optimizer = model.optimizer.variables if model.compiled and model.optimizer else []
        variables = [] if is_cast else [*model.variables, *optimizer]
        self.tensors = {id(variable): variable.value for variable in variables}


def torch_train_step(model: keras.Model, known: KnownInFit | None, data: Any) -> Any:
    """Keras' step on PyTorch, which asks all layers for their weights once, or once in `fit`."""
    import torch

    from keras_attention.ops.backends import torch_known

    weights = model.trainable_weights if known is None else known.weights
    if model.optimizer is None or not weights:
        return keras.Model.train_step(model, data)
    data = keras.utils.unpack_x_y_sample_weight(data)
    with torch_known.known({} if known is None else known.tensors):
        if model.jit_compile and process_count() == 1:
            loss, logs = model.compiled_loss(model, weights, data)
        else:
            loss, logs = loss_and_logs(model, data)
        values = [torch_known.tensor_of(weight) for weight in weights]
        for value in values:
            value.grad = None
        model.optimizer.scale_loss(loss).backward()
        with torch.no_grad():
            model.optimizer.apply([value.grad for value in values], weights)
    if known is not None and known.metrics is None:
        known.metrics = model.metrics
    return logs


def _token_count(model, y, sample_weight):
    """Return the real tokens of the whole update, in the dtype of the loss."""
    is_float64 = model.compute_dtype == "float64"  # A user's own loss may know no `dtype`.
    return model.loss.token_count(y, sample_weight, **{"dtype": "float64"} if is_float64 else {})


def _map(function, data):
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
