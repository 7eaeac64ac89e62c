"""Progress of a training on the console: a progress line, and a line for each epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TextIO

from keras_attention.callbacks.base import RunCallback, logged_numbers
from keras_attention.callbacks.budget import Budget
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.utils.arguments import Has, checked
from keras_attention.utils.forecast import Forecast
from keras_attention.utils.progress import Progress, say


class ConsoleProgress(RunCallback):
    """Shows the progress, the loss and the speed of a run with a budget.

    Loss and tokens per second come from the last entry of the monitor, so nothing more is read from the
    device.

    Args:
        budget: The `Budget` of the run.
        monitor: The `TrainingMonitor` of the run; without one, the progress line has no loss and speed.
        stream: Stream to write to. Defaults to standard error.
        announce: A function that is called once, as soon as the time of an update is known.
        beside: A function of the `Forecast` that returns the seconds of all other work to come. Defaults to
            none.
    """

    @checked
    def __init__(
        self,
        budget: Annotated[Budget, Has("a Budget", "steps", "minutes")],
        monitor: Annotated[TrainingMonitor, Has("a TrainingMonitor", "last")] | None = None,
        stream: Annotated[TextIO, Has("a file to write to", "write")] | None = None,
        announce: Callable[[], None] | None = None,
        beside: Callable[[Forecast], float] | None = None,
    ):
        super().__init__()
        self.budget = budget
        self.monitor = monitor
        self.stream = stream
        self.announce = announce
        self.beside = beside
        self._progress = Progress(None, "training", enabled=False)

    def on_train_begin(self, logs: Any = None) -> None:
        budget = self.budget
        if budget.steps is not None:
            total, unit, done = budget.steps, "updates", budget.updates
        else:
            total, unit, done = round(60 * (budget.minutes or 0)), "seconds", round(budget.seconds)
        self._progress = Progress(total, "training", unit, initial=done, stream=self.stream)
        self._progress.__enter__()
        self._show_left(budget.updates)

    def before_update(self, batch: int) -> None:
        budget = self.budget
        self._progress.note("" if budget.is_timed else _first_of(budget.shape))
        # `budget` has counted what begins now, which is not done yet.
        updates = budget.updates - (self._done - batch)
        done = updates if budget.steps is not None else round(budget.seconds)
        if self.announce is not None and budget.seconds_per_update is not None:
            announce, self.announce = self.announce, None
            announce()
        self._progress.values(self._numbers())
        self._show_left(updates)
        self._progress.reach(done)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        own: list[str] = []
        validation: list[str] = []
        for name, value in logged_numbers(logs or {}).items():
            part = validation if name.startswith("val_") else own
            part.append(f"{_spoken(name)} {value:.3f}")
        values = ", ".join(own)
        if validation:
            values += f"; validation {', '.join(validation)}"
        done, all_batches = self._done, (self.params or {}).get("steps")
        name = f"epoch {epoch + 1}"
        if all_batches is not None and done < all_batches:
            name += f" (part of it: {done:,} of {all_batches:,} batches)"
        say(f"{name}, update {self.budget.updates:,}: {values}", self.stream)
        self._show_left(self.budget.updates)

    def on_train_end(self, logs: Any = None) -> None:
        self._progress.note("")
        budget = self.budget
        self._progress.reach(budget.updates if budget.steps is not None else round(budget.seconds))
        self.close()

    def close(self) -> None:
        """End the line; also after an error."""
        self._progress.__exit__()
        self._progress = Progress(None, "training", enabled=False)

    def _show_left(self, updates: int) -> None:
        forecast = self.budget.forecast(updates)
        seconds = forecast.seconds_left
        if seconds is not None and self.beside is not None:
            seconds += self.beside(forecast)
        self._progress.left(seconds)

    def _numbers(self) -> str:
        entry = {} if self.monitor is None else self.monitor.last
        parts = []
        if self.budget.steps is None:
            parts.append(f"update {self.budget.updates:,}")
        if "loss" in entry:
            parts.append(f"loss {entry['loss']:.3f}")
        if "tokens_per_second" in entry:
            parts.append(f"{entry['tokens_per_second']:,.0f} tokens/s")
        return ", ".join(parts)


def _spoken(name: str) -> str:
    """Return a readable name for a number in Keras' logs: of "val_bleu" it is "BLEU"."""
    words = name.removeprefix("val_").split("_")
    return " ".join({"bleu": "BLEU", "chrf": "chrF"}.get(word, word) for word in words)


def _first_of(shape: tuple[int, int, int] | None) -> str:
    """Return what happens in a batch whose shape is new, which may take long."""
    size = "" if shape is None else f" of {shape[0]:,} x {max(shape[1:]):,} tokens"
    return f"the first batch{size} takes longer"
