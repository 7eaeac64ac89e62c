"""Callbacks of long runs: checkpoints, limits of time and steps, orderly ends."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.training.checkpoints import save_weights_atomically


class Checkpoints(keras.callbacks.Callback):
    """Writes a checkpoint at the end of every epoch, keeps the last few, and can go on from them.

    A checkpoint is a weights file with the optimizer's state and, once that is complete, a
    `progress.json` that names it and holds the logs of all epochs and how far each dropout has drawn
    (Keras does not save that: a resumed run would draw the same masks again). Both are atomic. An
    epoch that a signal cut short leaves no checkpoint: the run goes on from the end of the epoch
    before, as if it had not been interrupted.

    Args:
        folder: Where the files go; made if absent.
        keep: Number of checkpoints to keep.
        interrupted: Called at the end of an epoch; whether a signal cut it short.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), keep=2)
    >>> data = np.ones((4, 3)), np.ones((4, 1))
    >>> history = model.fit(*data, epochs=3, callbacks=[checkpoints], verbose=0)
    >>> [path.name for path in checkpoints.paths]
    ['epoch-00002.weights.h5', 'epoch-00003.weights.h5']
    >>> checkpoints.restore(model)
    3
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: int = 5,
        interrupted: Callable[[], bool] = lambda: False,
    ):
        super().__init__()
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1. Received: keep={keep}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.keep = keep
        self.interrupted = interrupted
        self.seconds = 0.0
        self.finished = False
        self.history: list[dict[str, Any]] = []
        self._started = time.monotonic()
        self._progress = self.folder / "progress.json"

    @property
    def paths(self) -> list[Path]:
        """The complete checkpoints, oldest first."""
        return sorted(self.folder.glob("epoch-*.weights.h5"))

    def restore(self, model: keras.Model) -> int:
        """Load the last checkpoint into a compiled model; return the number of epochs done, 0 if none."""
        if not self._progress.exists():
            return 0
        progress = json.loads(self._progress.read_text("utf-8"))
        if model.optimizer is not None:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self.folder / progress["checkpoint"])
        self.seconds = progress["seconds"]
        self.finished = progress["finished"]
        self.history = progress["history"]
        drawn = progress["random_states"]
        for variable, state in zip(_random_states(model), drawn, strict=True):
            variable.assign(np.array(state, keras.backend.standardize_dtype(variable.dtype)))
        return progress["epochs"]

    def on_train_begin(self, logs: Any = None) -> None:
        self._started = time.monotonic() - self.seconds

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.interrupted():
            return
        name = f"epoch-{epoch + 1:05d}.weights.h5"
        save_weights_atomically(self.model, self.folder / name)
        self.seconds = time.monotonic() - self._started
        entry = {
            "epoch": epoch + 1,
            "updates": int(keras.ops.convert_to_numpy(self.model.optimizer.iterations)),
            "seconds": round(self.seconds, 3),
            **{name: float(value) for name, value in (logs or {}).items()},
        }
        self.history.append(entry)
        progress = {
            "epochs": epoch + 1,
            "checkpoint": name,
            "seconds": round(self.seconds, 3),
            "finished": self.model.stop_training,
            "random_states": [
                keras.ops.convert_to_numpy(state).tolist() for state in _random_states(self.model)
            ],
            "history": self.history,
        }
        write_atomically(self._progress, json.dumps(progress, indent=2) + "\n")
        for path in self.paths[: -self.keep]:
            path.unlink()


def _random_states(model: keras.Model) -> list[Any]:
    """The states of all random generators inside a model."""
    return [v for v in model.variables if v.path.endswith("seed_generator_state")]


class Budget(keras.callbacks.Callback):
    """Stops training after a number of updates or of minutes, whichever is first.

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
        self.updates += 1
        if self.used >= 1.0:
            self.model.stop_training = True


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


class StopOnSignal(keras.callbacks.Callback):
    """Ends training in order on Ctrl-C or SIGTERM, after the present batch.

    A second Ctrl-C interrupts at once, as ever. `signal_name` says what ended the training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal_name: str | None = None
        self._previous: dict[int, Any] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)

    def on_train_end(self, logs: Any = None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self.signal_name = signal.Signals(number).name
        self.model.stop_training = True
        signal.signal(number, self._previous[number])


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a crash leaves the old one or the new one."""
    path = Path(path)
    partial = path.with_name(f".partial-{path.name}")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)
