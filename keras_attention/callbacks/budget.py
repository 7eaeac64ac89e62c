"""Limits a training to a number of updates or minutes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import keras

from keras_attention.training.distribution import chief_says
from keras_attention.training.learning_rate import CosineToBudget
from keras_attention.utils.checks import check_integer, check_iterable, check_number

# The schedule is told of each new share of this size: the rate is never far from the cosine.
RATE_STEP = 1 / 400


class Budget(keras.callbacks.Callback):
    """Stops training after a number of updates or minutes, whichever comes first.

    Minutes are minutes of training: compilation, validation and other work between two epochs do not
    count. The first batch of each shape compiles, so its time is not counted.

    If the optimizer has a `CosineToBudget` schedule, this callback tells it which share is used.

    Args:
        steps: Number of optimizer updates, over all starts of a run; None for no limit.
        minutes: Minutes of training, over all starts of a run; None for no limit.
        seconds_before: Seconds of training in earlier starts of the run. Defaults to 0.
        batches: The training data, with a method `batch_shape(epoch, index)`, as in `TokenBatches`.
            Without it, only the very first batch is expected to compile.

    Attributes:
        updates: Number of updates so far.
        seconds: Seconds of training so far.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        steps: int | None = None,
        minutes: float | None = None,
        seconds_before: float = 0.0,
        batches: Any = None,
    ):
        super().__init__()
        if steps is not None:
            check_integer("steps", steps, 1)
        if minutes is not None:
            check_number("minutes", minutes, above=0)
        check_number("seconds_before", seconds_before, least=0)
        if batches is not None:
            check_iterable("batches", batches)
        self.steps = steps
        self.minutes = minutes
        self.batches = batches
        self.updates = 0
        self.seconds = seconds_before
        self._shapes: set[Any] = set()  # compiled by this process
        self._epoch = 0
        self._batch_began: float | None = None  # None while time does not count
        self._rate_from = -math.inf

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed run needs to continue counting."""
        return {"seconds": self.seconds}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `get_state`."""
        self.seconds = state["seconds"]

    def is_over(self, updates: int) -> bool:
        """Whether a run with this number of updates has used up the budget."""
        return (self.steps is not None and updates >= self.steps) or (
            self.minutes is not None and self.seconds >= 60 * self.minutes
        )

    @property
    def is_timed(self) -> bool:
        """Whether the time of the current batch counts: not if it compiles."""
        return self._batch_began is not None

    @property
    def used(self) -> float:
        """The share of the budget that is used, from 0 to 1."""
        shares = [0.0]
        if self.steps is not None:
            shares.append(self.updates / self.steps)
        if self.minutes is not None:
            shares.append(self.seconds / (60 * self.minutes))
        return min(1.0, max(shares))

    def on_train_begin(self, logs: Any = None) -> None:
        self.updates = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self._batch_began = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    # Not on_train_batch_end: for that, Keras would read the metrics from the device in every step.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._count_time()
        if self.minutes is not None:
            self.seconds = chief_says(self.seconds)  # The learning rate may depend on it.
        shape = None
        if self.batches is not None:
            shape = self.batches.batch_shape(self._epoch, batch)
        self._batch_began = time.monotonic() if shape in self._shapes else None
        self._shapes.add(shape)
        if self.used - self._rate_from >= RATE_STEP:
            self._rate_from = self.used
            self._tell_schedule()
        self.updates += 1
        if self.used >= 1.0:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._count_time()
        self._batch_began = None

    def _count_time(self) -> None:
        if self._batch_began is not None:
            self.seconds += time.monotonic() - self._batch_began

    def _tell_schedule(self) -> None:
        # `LossScaleOptimizer` wraps the optimizer that has the schedule.
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        schedule = getattr(optimizer, "_learning_rate", None)
        if isinstance(schedule, CosineToBudget):
            schedule.used.assign(self._rate_from)
