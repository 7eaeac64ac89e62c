"""The base of our callbacks, and how a signal ends a training, which they tell each other."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from keras_attention.training.checkpoint_store import check_callbacks
from keras_attention.utils.arguments import checked
from keras_attention.utils.checks import check_iterable


@dataclasses.dataclass
class Stop:
    """Whether a signal ends a training, and where. The callbacks of one training share one object.

    Attributes:
        signal_name: The signal, such as `"SIGINT"`; None as long as there is none.
        within_epoch: Whether batches of the epoch are still to be done. Known when the epoch ends.
    """

    signal_name: str | None = None
    within_epoch: bool = False

    @property
    def interrupts(self) -> bool:
        """Whether a signal ends the training, to be continued later."""
        return self.signal_name is not None


class RunCallback(keras.callbacks.Callback):
    """A callback of a training that can be stopped within an epoch and resumed exactly.

    Subclasses override `before_update`, `after_epoch` or Keras' own methods. If they have a state that a
    resumed training needs, they override `get_state` and `set_state`, and `Checkpoints` keeps it.

    Args:
        stop: The `Stop` of the training; None for one of its own.

    Attributes:
        counter: The `Checkpoints` that keeps the callback's state, and counts the updates of the run.
    """

    counter: Any = None

    @checked
    def __init__(self, stop: Stop | None = None):
        super().__init__()
        self.stop = Stop() if stop is None else stop
        self._done = 0  # batches of the epoch
        self._at_once = 1  # batches of a call of the compiled step

    def before_update(self, batch: int) -> None:
        """Do something before each call of the compiled step; `batch` is its first one in the epoch."""

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        """Do something after each epoch that no signal cut short, and perhaps add to Keras' logs."""

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed training needs to continue; JSON can hold it."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `get_state`."""

    @property
    def updates_of_run(self) -> int:
        """The number of batches that were trained on, by which budgets and checkpoints count.

        The optimizer counts fewer where it skips an update, as `LossScaleOptimizer` does, or takes several
        batches for one, with Keras' `gradient_accumulation_steps`.
        """
        return updates_of(self.model) if self.counter is None else self.counter.updates

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._at_once = getattr(model, "steps_per_execution", 1)

    # Not on_train_batch_end: for that, Keras would read the metrics from the device in every step.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        steps = (self.params or {}).get("steps")
        self._done = min(batch + self._at_once, steps or sys.maxsize)
        self.before_update(batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        steps = (self.params or {}).get("steps")
        if steps is not None:
            self.stop.within_epoch = self._done < steps
        elif self.model is not None:
            self.stop.within_epoch = self.model.stop_training
        # Of an epoch that a signal cuts short, the rest is done later.
        if not (self.stop.interrupts and self.stop.within_epoch):
            self.after_epoch(epoch, {} if logs is None else logs)


def updates_of(model: keras.Model) -> int:
    """Return the number of optimizer updates so far; waits for the device."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def logged_numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in Keras' logs.

    A metric may have several, such as one for each class, and a user's callback may add anything.
    """
    found = {}
    for name, value in logs.items():
        with contextlib.suppress(TypeError, ValueError):
            found[name] = number(value)
    return found


def number(value: Any) -> float:
    """Convert a number or a scalar tensor to a Python float."""
    return float(keras.ops.convert_to_numpy(value))


def checked_callbacks(callbacks: Iterable[Any]) -> list[keras.callbacks.Callback]:
    """Return callbacks that a user gives to a run; refuse one with which a training could not be resumed."""
    found = list(check_iterable("callbacks", callbacks))
    for callback in found:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ValueError(
                f"`callbacks` must be a list of Keras callbacks. Received: {callback!r}"
            )
    names = [type(callback).__name__ for callback in found if isinstance(callback, RunCallback)]
    if len({*names}) < len(names):
        raise ValueError(
            f"`callbacks` may hold one `RunCallback` of a class. Received: {', '.join(names)}"
        )
    check_callbacks([c for c in found if not isinstance(c, RunCallback)])
    return found
