"""Stops training when the validation set no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.callbacks.best import is_better
from keras_attention.utils.arguments import Count, Has, checked
from keras_attention.utils.progress import say

if TYPE_CHECKING:
    from keras_attention.callbacks.budget import Budget


class StopWithoutGain(RunCallback):
    """Stops training when a number has not improved for some epochs; a resumed run continues counting.

    Args:
        patience: Number of epochs without a new best value; None to never stop. Epochs without the number do
            not count.
        monitor: Name of the number in Keras' logs. A callback that adds it must come before this one.
            Defaults to `"val_perplexity"`.
        stop: The `Stop` of the training: an epoch that a signal cuts short does not count.
        budget: A `Budget` with a cool-down, which then begins instead of stopping at once.
        mode: `"min"` if lower is better, `"max"` if higher is. Defaults to `"min"`.

    Attributes:
        is_over: Whether the patience is over.

    Raises:
        ValueError: If `patience` is not positive.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> stop = StopWithoutGain(2)
    >>> stop.set_model(model)
    >>> for epoch, value in enumerate([5.0, 4.0, 4.5, 4.0]):
    ...     stop.on_epoch_end(epoch, {"val_perplexity": value})
    >>> stop.is_over, model.stop_training
    (True, True)
    """

    @checked
    def __init__(
        self,
        patience: Count | None,
        monitor: str = "val_perplexity",
        stop: Stop | None = None,
        budget: Annotated[Budget, Has("a Budget", "finish", "cools_from")] | None = None,
        mode: Literal["min", "max"] = "min",
    ):
        super().__init__(stop)
        self.patience = patience
        self.monitor = monitor
        self.budget = budget
        self.mode = mode
        self.is_over = False
        self._best: float | None = None
        self._epochs_since = 0

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed run needs to continue counting; JSON can hold it."""
        return {"best": self._best, "epochs_since": self._epochs_since}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `get_state`. With more patience, a stopped training can continue."""
        self._best = state["best"]
        self._epochs_since = state["epochs_since"]
        self.is_over = self.patience is not None and self._epochs_since >= self.patience

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        value = logs.get(self.monitor)
        is_cooling = self.budget is not None and self.budget.cools_from is not None
        if self.patience is None or value is None or is_cooling:
            return
        if math.isfinite(value) and is_better(self.mode, value, self._best):
            self._best, self._epochs_since = value, 0
            return
        self._epochs_since += 1
        if self._epochs_since >= self.patience:
            self.is_over = True
            say(
                f"{'Training stops' if self.budget is None else 'The learning rate falls from here on'}: "
                f"{self.monitor.removeprefix('val_')} of the validation set has not "
                f"{'fallen below' if self.mode == 'min' else 'risen above'} "
                f"{math.inf if self._best is None else self._best:.3f} for {self.patience} epochs."
            )
            if self.budget is None:
                self.model.stop_training = True
            else:
                self.budget.finish()
