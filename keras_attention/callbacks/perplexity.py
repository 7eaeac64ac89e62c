"""Perplexity and loss of the validation set after each epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.training.distribution import computing_alone
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.training.moving_average import with_moving_average
from keras_attention.utils.arguments import checked
from keras_attention.utils.progress import activity


class ValidationPerplexity(RunCallback):
    """Adds the perplexity of the validation set to the logs of each epoch, as `val_perplexity`.

    If the model is compiled with a `LabelSmoothedCrossentropy`, it adds that loss as `val_loss`, which is
    comparable to the training loss apart from dropout. If the optimizer keeps a moving average of the
    weights, that is measured.

    Args:
        batches: Batches of the validation set.
        stop: The `Stop` of the training: an epoch that a signal cuts short gets no perplexity.

    Attributes:
        seconds: How long it took last; None before it was measured.
    """

    @checked
    def __init__(self, batches: Iterable[Any], stop: Stop | None = None):
        super().__init__(stop)
        self.batches = batches
        self.seconds: float | None = None
        self._meter: PerplexityMeter | None = None

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        logs.update(self.measure())

    def measure(self) -> dict[str, float]:
        """Return the numbers of the current model."""
        began = time.monotonic()
        alone, moving = computing_alone(self.model), with_moving_average(self.model)
        with alone, moving, activity("perplexity of the validation set"):
            if self._meter is None or self._meter.model is not self.model:
                loss = getattr(self.model, "loss", None)
                smoothed = isinstance(loss, LabelSmoothedCrossentropy)
                self._meter = PerplexityMeter(self.model, loss if smoothed else None)
            found = {"val_perplexity": self._meter(self.batches)}
            if self._meter.last_loss is not None:
                found["val_loss"] = self._meter.last_loss
        self.seconds = time.monotonic() - began
        return found
