"""A log of how a Weighted Transformer's branches are weighted while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_attention.callbacks.metrics_log import MetricsLog

WEIGHTS = ("kappa", "alpha")


class BranchLog(keras.callbacks.Callback):
    """Writes kappa and alpha of every branched attention of a model, now and then.

    An entry has the update and, for each attention, such as `"encoder_block_1/self_attention/kappa"`, the
    list of its weights. A resumed run goes on behind the update from which it goes on.

    Args:
        log: The log to write to; any log of lines of JSON.
        every: Updates between two entries.
    """

    def __init__(self, log: MetricsLog, every: int = 50):
        super().__init__()
        self.log = log
        self.every = every

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._updates = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self.log.keep_until(self._updates)
        if not self._updates:
            self._write()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        self._updates += 1
        if self._updates % self.every == 0:
            self._write()

    def _write(self) -> None:
        values = branch_weights(self.model)
        self.log.write({"update": self._updates, **values})


def branch_weights(model: Any) -> dict[str, list[float]]:
    """Kappa and alpha of a model: for each, `"BLOCK/ATTENTION/NAME"`, its weights; {} of a plain model."""
    return {
        "/".join(weight.path.split("/")[-3:]): keras.ops.convert_to_numpy(weight).tolist()
        for weight in model.trainable_variables
        if weight.path.rpartition("/")[2] in WEIGHTS
    }
