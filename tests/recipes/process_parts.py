"""The additions of several processes, made by one on PyTorch: what comes of it is the same in every bit.

Float32 rounds each sum, and in another order otherwise. Where a gradient is hardly more than that, Adam makes
a whole step of it, and training makes it grow: after 200 updates one process with slices differs from one
without by a third. So whoever compares trainings that long has to add in the same order.
"""

import contextlib
import functools
import operator

import keras
import pytest

from keras_attention.models import trainable


@contextlib.contextmanager
def parts_of(count, slices):
    """Within, one process computes one after another what `count` processes would, each in slices."""

    def step(model, known, data):
        return _step_of_parts(model, data, count, slices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainable, "torch_train_step", step)
        yield


@contextlib.contextmanager
def sums_in_order():
    """Within, processes add in the order of their numbers; gloo's depends on the place in the message."""
    import torch.distributed as dist

    def sum_in_order(tensor):
        shares = [tensor.new_empty(tensor.shape) for _ in range(dist.get_world_size())]
        dist.all_gather(shares, tensor)
        return tensor.copy_(functools.reduce(operator.add, shares))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", sum_in_order)
        yield


def _step_of_parts(model, data, count, slices):
    import torch

    data = keras.utils.unpack_x_y_sample_weight(data)
    tokens = model.loss.token_count(*data[1:])
    weights = model.trainable_weights
    rows, shares = len(data[1]) // count, count * slices
    total, sums = 0.0, None
    for first in range(0, rows * count, rows):
        model.zero_grad()
        for number in range(slices):
            x, y, weight = _cut(data, slice(first + number, first + rows, slices))
            y_pred = model(x, training=True)
            value = model.loss.token_sum(y, y_pred, weight) / (tokens / shares) / shares
            value.backward()
            total = total + value.detach()
            with torch.no_grad():
                model.compute_metrics(x, y, y_pred.detach(), weight)
        share = [weight.value.grad.clone() for weight in weights]
        sums = share if sums is None else [a + b for a, b in zip(sums, share, strict=True)]
    tracker = next(metric for metric in model.metrics if metric.name == "loss")
    tracker.update_state(total, sample_weight=rows * count)
    with torch.no_grad():
        model.optimizer.apply(sums, weights)
    return model.get_metrics_result()


def _cut(data, rows):
    return keras.tree.map_structure(lambda tensor: None if tensor is None else tensor[rows], data)
