"""A log of the branch weights of a Weighted Transformer while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_attention.callbacks.base import RunCallback, updates_of
from keras_attention.callbacks.metrics_log import MetricsLog

WEIGHTS = ("kappa", "alpha")


class BranchLog(RunCallback):
    """Logs kappa and alpha of every branched attention of a model, every few updates.

    An entry has the number of the update and, under names such as
    `"encoder_block_1/self_attention/kappa"`, lists of weights. A resumed run removes the entries of
    updates that it repeats.
    """

    def __init__(self, log: MetricsLog, every: int = 50):
        super().__init__()
        self.log = log
        self.every = every

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._updates = updates_of(self.model)
        self.log.keep_until(self._updates)
        self._written = max((entry["update"] for entry in self.log.read()), default=-1)
        self._write_if_due()

    def before_update(self, batch: int) -> None:
        self._write_if_due()
        self._updates += 1

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._write_if_due()

    def _write_if_due(self) -> None:
        if self._updates > self._written and self._updates % self.every == 0:
            self._written = self._updates
            self.log.write({"update": self._updates, **branch_weights(self.model)})


def branch_weights(model: Any) -> dict[str, list[float]]:
    """Return kappa and alpha of a model by name, `"BLOCK/ATTENTION/NAME"`; {} for a plain model."""
    return {
        "/".join(weight.path.split("/")[-3:]): keras.ops.convert_to_numpy(weight).tolist()
        for weight in model.trainable_variables
        if weight.path.rpartition("/")[2] in WEIGHTS
    }
