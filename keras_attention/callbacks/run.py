"""Callbacks of long runs: limits of time and steps, progress, orderly ends."""

import math
import signal
import sys
import time
from typing import Any

import keras

from keras_attention.training.learning_rate import CosineToBudget

# Shares of a budget after which the learning rate falls again: no update is far from the cosine.
RATE_STEP = 1 / 400


class Budget(keras.callbacks.Callback):
    """Stops training after a number of updates or of minutes, whichever is first.

    A `CosineToBudget`, if the optimizer has one, is told what share is used.

    Args:
        steps: Number of optimizer updates, counted over all starts of a run; None for no limit.
        minutes: Wall-clock minutes of training, counted over all starts of a run; None for no limit.
        seconds_before: Seconds that earlier starts of the run have used.
    """

    def __init__(
        self, steps: int | None = None, minutes: float | None = None, seconds_before: float = 0.0
    ):
        super().__init__()
        self.steps = steps
        self.minutes = minutes
        self.seconds_before = seconds_before
        self.updates = 0
        self._started = time.monotonic()
        self._rate_from = -math.inf

    def is_over(self, updates: int, seconds: float) -> bool:
        """Whether a run that has come so far has used the budget up."""
        return (self.steps is not None and updates >= self.steps) or (
            self.minutes is not None and seconds >= 60 * self.minutes
        )

    @property
    def used(self) -> float:
        """The share of the budget that is used, from 0 to 1."""
        shares = [0.0]
        if self.steps is not None:
            shares.append(self.updates / self.steps)
        if self.minutes is not None:
            shares.append((time.monotonic() - self._started) / (60 * self.minutes))
        return min(1.0, max(shares))

    def on_train_begin(self, logs: Any = None) -> None:
        self.updates = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self._started = time.monotonic() - self.seconds_before

    # Not on_train_batch_end: for that, Keras would read the metrics from the device in every step.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.used - self._rate_from >= RATE_STEP:
            self._rate_from = self.used
            self._tell_schedule()
        self.updates += 1
        if self.used >= 1.0:
            self.model.stop_training = True

    def _tell_schedule(self) -> None:
        # `LossScaleOptimizer` wraps the one with the schedule.
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        schedule = getattr(optimizer, "_learning_rate", None)
        if isinstance(schedule, CosineToBudget):
            schedule.used.assign(self._rate_from)


class ConsoleProgress(keras.callbacks.Callback):
    """Says on the console how far a run with a budget is: a line an epoch, and between them on a terminal.

    Args:
        budget: The run's budget, which knows what share of it is used.
        stream: Where to write. Defaults to the standard output.
    """

    def __init__(self, budget: "Budget", stream: Any = None):
        super().__init__()
        self.budget = budget
        self.stream = stream or sys.stdout
        self._shown = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        now = time.monotonic()
        if self.stream.isatty() and now - self._shown > 1.0:
            self._shown = now
            of = f" of {self.params['steps']}" if self.params.get("steps") else ""
            self.stream.write(f"\r  batch {batch + 1}{of}, {self.budget.used:.0%} of the budget ")
            self.stream.flush()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        values = ", ".join(
            f"{name.removeprefix('val_').replace('_', ' ') if name != 'loss' else name} {value:.3f}"
            for name, value in (logs or {}).items()
        )
        start = "\r" if self.stream.isatty() else ""
        self.stream.write(
            f"{start}epoch {epoch + 1}, update {self.budget.updates:,}, "
            f"{self.budget.used:.0%} of the budget: {values}\n"
        )
        self.stream.flush()


class TrainingStopped(KeyboardInterrupt):
    """A signal ended training in order; a checkpoint was written.

    Args:
        signal_name: `"SIGINT"` or `"SIGTERM"`.

    Attributes:
        signal_name: As given.
        exit_code: What a shell expects of a process that the signal ended: 130 or 143.
    """

    def __init__(self, signal_name: str):
        super().__init__(signal_name)
        self.signal_name = signal_name
        self.exit_code = 128 + int(signal.Signals[signal_name])


class StopOnSignal(keras.callbacks.Callback):
    """Ends training in order on Ctrl-C or SIGTERM, after the present batch.

    A second Ctrl-C interrupts at once, as ever. `signal_name` says what ended the training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal_name: str | None = None
        self._previous: dict[int, Any] = {}
        self._trained: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        # Not `self.model` when the signal comes: on JAX that moves the state, perhaps within a step.
        self._trained = self.model
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.signal_name is not None:  # It came before `fit` set `stop_training` to False.
            self._trained.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self.signal_name = signal.Signals(number).name
        self._trained.stop_training = True
        signal.signal(number, self._previous[number])
