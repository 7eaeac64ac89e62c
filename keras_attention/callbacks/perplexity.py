"""The perplexity and the loss of the validation part after every epoch."""

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
    """Adds the perplexity of the validation part to the logs of an epoch, as `val_perplexity`.

    Where the model is compiled with a `LabelSmoothedCrossentropy`, `val_loss` is that of the validation
    part. It compares with the loss of training, but for dropout.

    Args:
        batches: The validation part.
        cut_short: Whether a signal has cut the epoch short; asked at its end, which then has no
            perplexity.
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
