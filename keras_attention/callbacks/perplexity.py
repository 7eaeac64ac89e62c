"""The perplexity of the validation part after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.utils.progress import activity


class ValidationPerplexity(keras.callbacks.Callback):
    """Adds the perplexity of the validation part to the logs of an epoch, as `val_perplexity`.

    Args:
        batches: The validation part.
        cut_short: Whether a signal has cut the epoch short; asked at its end, which then has no
            perplexity.
    """

    def __init__(self, batches: Any, cut_short: Callable[[], bool] = lambda: False):
        super().__init__()
        self.batches = batches
        self.cut_short = cut_short
        self._meter: PerplexityMeter | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs is not None and not self.cut_short():
            with activity("perplexity of the validation set"):
                if self._meter is None or self._meter.model is not self.model:
                    self._meter = PerplexityMeter(self.model)
                logs["val_perplexity"] = self._meter(self.batches)
