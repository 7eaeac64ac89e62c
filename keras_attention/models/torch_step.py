"""One update on PyTorch: whole or in slices of its rows, compiled or not, of one process or several."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_attention.models.accumulated_step import check_rows, map_tensors, token_count
from keras_attention.models.compiled_loss import loss_and_logs
from keras_attention.training import processes
from keras_attention.training.losses import LabelSmoothedCrossentropy


class KnownInFit:
    """What does not change within `fit` on PyTorch: a model of many layers takes long to say it anew.

    As on the other backends, another `trainable` counts from the next `fit` on.
    """

    metrics: list[Any] | None = None  # from the first step on, which makes some

    def __init__(self, model: keras.Model) -> None:
        self.weights = model.trainable_weights
        layers = list(model._flatten_layers())  # the model, too
        # Whether model, layers and weights add no loss of their own, as a user's might.
        self.has_no_losses = not any(weight.regularizer for weight in self.weights) and all(
            type(layer).__module__.partition(".")[0] in ("keras", "keras_attention")
            and layer.activity_regularizer is None
            for layer in layers
        )
        is_cast = any(layer.compute_dtype != layer.variable_dtype for layer in layers)
        optimizer = model.optimizer.variables if model.compiled and model.optimizer else []
        # By their `id`; none if they are cast when they are read.
        variables = [] if is_cast else [*model.variables, *optimizer]
        self.tensors = {id(variable): variable.value for variable in variables}


def torch_train_step(model: keras.Model, known: KnownInFit | None, data: Any) -> Any:
    """Keras' step, which asks all layers for their weights once, or once in `fit`.

    Each process computes the gradient and the metrics of its own rows; all get the sums, whatever the
    optimizer: Keras' own do not ask other processes.
    """
    import torch

    from keras_attention.ops.backends import torch_known

    weights = model.trainable_weights if known is None else known.weights
    if model.optimizer is None or not weights:
        return keras.Model.train_step(model, data)
    is_shared = processes.process_count() > 1
    before = {id(v): v.value.clone() for v in model.metrics_variables} if is_shared else {}
    with torch_known.known({} if known is None else known.tensors):
        with processes.in_training_step():
            gradients, logs = _gradients(model, weights, data)
            if is_shared:
                # There is none for a weight that no loss depends on.
                sums = iter(
                    processes.sum_over_processes([one for one in gradients if one is not None])
                )
                gradients = [None if one is None else next(sums) for one in gradients]
                variables = model.metrics_variables  # With the first batch, Keras makes some.
                olds = [before.get(id(v), 0.0 * v.value) for v in variables]
                processes.add_sums_of_processes(olds, variables)
        with torch.no_grad():
            model.optimizer.apply(gradients, weights)
    if known is not None and known.metrics is None:
        known.metrics = model.metrics
    return model.get_metrics_result() if is_shared else logs


def _gradients(model: keras.Model, weights: Sequence[keras.Variable], data: Any) -> tuple[Any, Any]:
    """Return the gradients of this process's rows, summed over their slices, and what Keras' step returns."""
    from keras_attention.ops.backends import torch_known

    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    steps = model.accumulation_steps
    if steps > 1:
        check_rows(y.shape[0], steps)
    # Asked once for all slices, and outside of a compiled program: it may be of several processes.
    is_counted = steps * processes.process_count() > 1 and isinstance(
        model.loss, LabelSmoothedCrossentropy
    )
    count = token_count(model, y, sample_weight) / steps if is_counted else None
    values = [torch_known.tensor_of(weight) for weight in weights]
    for value in values:
        value.grad = None
    for index in range(steps):
        part = x, y, sample_weight
        if steps > 1:
            part = map_tensors(lambda tensor: tensor[index::steps], part)  # noqa: B023
        if model.jit_compile:
            loss, logs = model.compiled_loss(model, weights, (*part, count))
        else:
            loss, logs = loss_and_logs(model, (*part, count))
        model.optimizer.scale_loss(loss).backward()  # Adds to the gradients of the slices before.
    return [value.grad for value in values], logs
