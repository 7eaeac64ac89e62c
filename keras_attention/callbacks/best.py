"""What the validation set decides: which checkpoint is the best and kept, and when training stops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.utils.arguments import Count, Has, checked
from keras_attention.utils.progress import say

if TYPE_CHECKING:
    from keras_attention.callbacks.budget import Budget

Found = tuple[float, int]  # a value, and the number of updates after which it was measured


def is_better(mode: str, value: float, best: float | None) -> bool:
    """Whether a number is better than the best so far; None is worse than all numbers, NaN never better."""
    if best is None:
        return value == value
    return value < best if mode == "min" else value > best


class BestCheckpoint(RunCallback):
    """Keeps the checkpoint with the best value of a number; `Checkpoints(stateful=[...])` needs it.

    Of equal values, the first is the best. What a training that has ended within an epoch measured there no
    longer counts when it goes on: the result is that of a training in one go. The weights before the first
    update may be the best, too: see `begin`.

    Args:
        monitor: Name of the number in Keras' logs, such as `"val_bleu"`. A callback that adds it must come
            before this one, `Checkpoints` after it. Epochs without the number do not count.
        mode: `"min"` if lower is better, `"max"` if higher is. Defaults to `"min"`.
        stop: The `Stop` of the training: an epoch that a signal cuts short does not count.
        budget: A `Budget` with a cool-down. The best checkpoint from before it is kept, too: with another
            budget, training goes on from there.

    Attributes:
        best: The best value and its number of updates, or None.

    Example:

    >>> import tempfile
    >>> import keras
    >>> import numpy as np
    >>> from keras_attention.callbacks.checkpoints import Checkpoints
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> best = BestCheckpoint("loss", "max")
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), keep=1, stateful=[best])
    >>> data = np.ones((4, 3)), np.ones((4, 1))
    >>> history = model.fit(*data, epochs=4, callbacks=[best, checkpoints], verbose=0)
    >>> [path.name for path in checkpoints.paths], best.best[1]
    (['update-00000001', 'update-00000004'], 1)
    """

    @checked
    def __init__(
        self,
        monitor: str,
        mode: Literal["min", "max"] = "min",
        stop: Stop | None = None,
        budget: Annotated[Budget, Has("a Budget", "finish", "cools_from")] | None = None,
    ):
        super().__init__(stop)
        self.monitor = monitor
        self.mode = mode
        self.budget = budget
        # At the ends of whole epochs; of them, before the cool-down; where training ended within an epoch.
        self._whole: Found | None = None
        self._warm: Found | None = None
        self._end: Found | None = None

    @property
    def best(self) -> Found | None:
        """The best value and the number of updates after which it was measured."""
        if self._end is not None and self._is_better(self._end, self._whole):
            return self._end
        return self._whole

    @property
    def milestones(self) -> set[int]:
        """The updates whose checkpoints are kept."""
        found = (self._whole, self._warm, self._end)
        return {one[1] for one in found if one is not None}

    def _is_better(self, one: Found, other: Found | None) -> bool:
        return is_better(self.mode, one[0], None if other is None else other[0])

    def begin(self, value: float) -> None:
        """Count the weights before the first update, too, whose checkpoint is written and kept then.

        Args:
            value: The number of these weights.
        """
        found = (float(value), 0)
        if self._is_better(found, None):
            self._whole = self._warm = found

    def get_state(self) -> dict[str, Any]:
        best = self.best
        return {
            "monitor": self.monitor,
            "best": None if best is None else {"value": best[0], "updates": best[1]},
            **{name: getattr(self, f"_{name}") for name in ("whole", "warm", "end")},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        for name in ("whole", "warm", "end"):
            found = state[name]
            setattr(self, f"_{name}", None if found is None else (found[0], found[1]))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._end = None

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        value = logs.get(self.monitor)
        if value is None:
            return
        found = (float(value), self.updates_of_run)
        if self.stop.within_epoch:
            self._end = found if self._is_better(found, self._whole) else None
        elif self._is_better(found, self._whole):
            is_cooling = self.budget is not None and self.budget.cools_from is not None
            self._whole, self._warm = found, self._warm if is_cooling else found


class StopWithoutGain(RunCallback):
    """Stops training when a number has not improved for some epochs; a resumed run continues counting.

    Args:
        patience: Number of epochs without a new best value; None to never stop. Epochs without the number do
            not count, nor do those within which a training ends, as it may go on there.
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
        budget: Annotated[Budget, Has("a Budget", "finish", "cooldown")] | None = None,
        mode: Literal["min", "max"] = "min",
    ):
        super().__init__(stop)
        if budget is not None and budget.cooldown is None:
            raise ValueError(
                "`budget` must have a `cooldown`, which begins when the patience is over."
            )
        self.patience = patience
        self.monitor = monitor
        self.budget = budget
        self.mode = mode
        self.is_over = False
        self._best: float | None = None
        self._epochs_since = 0

    def get_state(self) -> dict[str, Any]:
        return {"best": self._best, "epochs_since": self._epochs_since}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `get_state`. With more patience, a stopped training can continue."""
        self._best = state["best"]
        self._epochs_since = state["epochs_since"]
        self.is_over = self.patience is not None and self._epochs_since >= self.patience

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        value = logs.get(self.monitor)
        is_cooling = self.budget is not None and self.budget.cools_from is not None
        if self.patience is None or value is None or is_cooling or self.stop.within_epoch:
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
