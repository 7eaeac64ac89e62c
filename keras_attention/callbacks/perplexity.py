"""Perplexity and loss of the validation set after each epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.training.distribution import computing_alone
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.utils.checks import check_callable, check_iterable
from keras_attention.utils.progress import activity


class ValidationPerplexity(keras.callbacks.Callback):
    """Adds the perplexity of the validation set to the logs of each epoch, as `val_perplexity`.

    If the model is compiled with a `LabelSmoothedCrossentropy`, it adds that loss as `val_loss`, which is
    comparable to the training loss apart from dropout.

    Args:
        batches: Batches of the validation set.
        cut_short: A function, called at the end of an epoch: whether a signal cut the epoch short. Such an
            epoch gets no perplexity.
    """

    def __init__(self, batches: Any, cut_short: Callable[[], bool] = lambda: False):
        super().__init__()
        check_iterable("batches", batches)
        check_callable("cut_short", cut_short)
        self.batches = batches
        self.cut_short = cut_short
        self._meter: PerplexityMeter | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs is not None and not self.cut_short():
            with computing_alone(self.model), activity("perplexity of the validation set"):
                if self._meter is None or self._meter.model is not self.model:
                    loss = getattr(self.model, "loss", None)
                    smoothed = isinstance(loss, LabelSmoothedCrossentropy)
                    self._meter = PerplexityMeter(self.model, loss if smoothed else None)
                logs["val_perplexity"] = self._meter(self.batches)
                if self._meter.last_loss is not None:
                    logs["val_loss"] = self._meter.last_loss
