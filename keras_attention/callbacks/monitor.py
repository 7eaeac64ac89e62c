"""A Keras callback that records training: curves, a machine-readable log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

import keras

from keras_attention.callbacks.base import RunCallback, logged_numbers, number, updates_of
from keras_attention.callbacks.budget import Budget
from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.utils.arguments import Count, Has, Positive, checked
from keras_attention.utils.checks import check_iterable, check_optional
from keras_attention.visualization.event_files import SummaryWriter

# What tells how good the model is, on the validation set; and the group of each number of the training.
QUALITY = {"bleu", "chrf", "perplexity"}
GROUPS = {
    "loss": "quality",
    "learning_rate": "rate",
    "gradient_norm": "rate",
    "padding": "work",
    "mfu": "work",
}


class TrainingMonitor(RunCallback):
    """Logs loss, metrics, learning rate and speed every few batches, and the results of each epoch.

    Between entries it reads nothing from the device, so it does not slow training down. It flushes after
    each entry, so an interrupted run loses nothing. The horizontal axis counts the optimizer's updates
    over the whole run, also after a resume.

    Tags in TensorBoard:

    * `quality/loss`: mean since the last entry
    * `quality/bleu`, `quality/chrf`, `quality/perplexity`: of the validation set, if they are measured
    * `quality/validation_loss`: Keras' `val_loss`, without a `validation_writer`
    * `quality/loss` of `validation_writer`: the same: one chart shows both losses, as two runs
    * `train/<metric>`: compiled metrics that are one number, as in the progress bar: since the epoch began
    * `rate/learning_rate`: rate of the next update
    * `rate/gradient_norm`: of the last update, if the optimizer has it, as `Adam` does
    * `work/batches_per_second`: without validation and batches that compile, as far as `budget` knows them
    * `work/tokens_per_second`: likewise, source plus target tokens, without padding
    * `work/padding`: share of padding in the positions since the last entry
    * `work/flops_per_second`: counted FLOPs of training, padding included
    * `work/mfu`: that as a share of the peak
    * `train/epoch_<metric>`: Keras' logs at the end of an epoch
    * `validation/<metric>`: Keras' other `val_<metric>`

    The lines of `log` hold the same numbers, under the names after the slash. They also have `kind`
    (`"train"`, `"epoch"` or the `kind` given to `record`), `update` and `epoch`, which counts from 0. A
    run that is resumed with `set_state` leaves the same log as an uninterrupted one, except for the
    fields that depend on the clock (`WALL_CLOCK_FIELDS`). For that, put this callback before the one that
    saves checkpoints.

    Args:
        writer: A `SummaryWriter` for the curves. It stays open; the caller closes it. None for no curves.
        batches: The training data. Curves of tokens per second, padding and FLOPs need two methods, which
            `TokenBatches` has: `tokens_in_batch(epoch, index)` returns the numbers of source and target
            tokens in a batch, and `batch_shape(epoch, index)` its padded shape (B, S, T).
        every: Number of batches between two entries. A shorter epoch has one entry, before its last call of
            the compiled step. Defaults to 100.
        log: A `MetricsLog` to write the numbers to as well.
        flops: A function from B, S and T to the FLOPs of training on such a batch: see
            `keras_attention.evaluation.training_flops`.
        peak: FLOP/s of all devices together, for the MFU.
        validation_writer: A second writer. It gets `val_loss` under the name of the training loss, so
            that TensorBoard draws the two in one chart, as two runs.
        budget: A `Budget` whose clock stops together with this one's, and comes before in the callbacks.
            Batches whose time it does not count are no part of the speed.

    Attributes:
        last: The numbers of the last entry of kind `"train"`, under the names after the slash.

    Raises:
        ValueError: If `every` is not positive.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((12, 3)), np.ones((12, 1))
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     log = MetricsLog(f"{folder}/metrics.jsonl")
    ...     monitor = TrainingMonitor(writer, every=2, log=log)
    ...     history = model.fit(x, y, batch_size=2, callbacks=[monitor], verbose=0)
    ...     [(entry["kind"], entry["update"]) for entry in log.read()]
    [('train', 3), ('train', 5), ('epoch', 6)]
    """

    @checked
    def __init__(
        self,
        writer: Annotated[SummaryWriter, Has("a SummaryWriter", "scalar")] | None,
        batches: Any = None,
        every: Count = 100,
        log: Annotated[MetricsLog, Has("a MetricsLog", "write")] | None = None,
        flops: Callable[[int, int, int], float] | None = None,
        peak: Positive | None = None,
        validation_writer: Annotated[SummaryWriter, Has("a SummaryWriter", "scalar")] | None = None,
        budget: Annotated[Budget, Has("a Budget", "pause")] | None = None,
    ):
        super().__init__()
        if not hasattr(batches, "tokens_in_batch"):
            check_optional(check_iterable, "batches", batches)
        self.batches = batches
        self.every = every
        self.flops = flops
        self.peak = peak
        self.writer = writer
        self.validation_writer = validation_writer
        self.log = log
        self.budget = budget
        self.last: dict[str, float] = {}
        self._begun = False  # whether the first batch of the run, which compiles, is over
        self._epoch = self._first_batch = 0
        # Epoch and number, in the data, of the first batch of Keras' epoch; None before training.
        self._origin: tuple[int, int] | None = None
        self._within_epoch = False
        self._loss_sums = (0.0, 0.0)
        self._state: dict[str, Any] | None = None
        self._size: int | None = None  # of the log, without what a resumed run writes again
        self._timed_from: int | None = None
        self._cold_batch: int | None = None
        self._start = self._untimed_before = 0.0

    def get_state(self) -> dict[str, Any]:
        return {
            "begun": self._begun,
            "first_batch": self._first_batch,
            "loss_sums": list(self._loss_sums),
            "log_size": self._size if self.log is None or self._size is not None else self.log.size,
            "within_epoch": self._within_epoch,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `get_state`. When training begins, later log entries are removed."""
        self._state = dict(state)

    def on_train_begin(self, logs: Any = None) -> None:
        """Remove the log entries of updates that are repeated."""
        state = self._state
        if self.log is not None:
            if state is None:
                self.log.keep_until(updates_of(self.model))
            elif state["log_size"] is not None:
                self.log.cut(state["log_size"])
        self._begun = state["begun"] if state is not None else False
        self._timed_from = self._cold_batch = self._size = self._origin = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Restarts the clock: validation between epochs is not training time."""
        self._epoch = getattr(self.batches, "epoch", epoch)
        self._origin = self._next_origin(epoch)
        state, self._state = self._state, None
        self._size = None
        if state is not None and state["within_epoch"]:
            self._first_batch = state["first_batch"]
            self._loss_sums = (state["loss_sums"][0], state["loss_sums"][1])
            return
        self._loss_sums = (0.0, 0.0)  # Keras resets its metrics now
        self._start_window(0)

    def _next_origin(self, epoch: int) -> tuple[int, int]:
        """Return where the data of this epoch begin: with `steps_per_epoch`, within a pass over them."""
        if self._origin is not None and hasattr(self.batches, "__len__"):
            if (self.params or {}).get("steps") != len(self.batches):
                return self._located(self._done)
        return getattr(self.batches, "epoch", epoch), 0

    def _located(self, index: int) -> tuple[int, int]:
        """Return the epoch and the number, in the data, of a batch of Keras' epoch."""
        assert self._origin is not None
        epoch, first = self._origin
        if not hasattr(self.batches, "__len__"):
            return epoch, index
        passes, place = divmod(first + index, len(self.batches))
        return epoch + passes, place

    def before_update(self, batch: int) -> None:
        """Log when enough batches are complete; `batch` is their number in this epoch."""
        self._within_epoch = True
        complete = batch - self._first_batch
        if complete and not self._begun:
            self._begun = True
            self._start_window(batch)
        elif complete >= self.every or (complete and self._is_last()):
            self._log_window(range(self._first_batch, batch))
            self._start_window(batch)
        elif self._timed_from is None:
            self._start_clock(batch)

    def _is_last(self) -> bool:
        """Whether the epoch ends with the call of the compiled step that begins now."""
        steps = self.params.get("steps")
        return steps is not None and self._done >= steps

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Log Keras' results of the epoch."""
        steps = self.params.get("steps")
        self._within_epoch = steps is not None and self._done < steps
        if self._within_epoch and self.log is not None:
            self._size = self.log.size  # cut short: a resumed run completes the epoch
        self._write("epoch", logged_numbers(logs or {}), updates_of(self.model), epoch)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock within this context, for work that is not training."""
        began = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self._start += took
            if self.budget is not None:
                self.budget.pause(took)

    def _start_window(self, batch: int) -> None:
        self._first_batch = batch
        self._start_clock(batch)

    def _start_clock(self, batch: int) -> None:
        # The first batch of a process compiles: the clock starts after it.
        if self._cold_batch is None:
            self._cold_batch = batch
        self._timed_from = (
            batch if self._timed_from is not None or batch > self._cold_batch else None
        )
        self._start, self._untimed_before = time.perf_counter(), self._untimed()

    def _untimed(self) -> float:
        return 0.0 if self.budget is None else self.budget.untimed_seconds

    def _log_window(self, batches: range) -> None:
        model = self.model
        step = updates_of(model)  # waits for the device, so comes before the clock
        seconds = time.perf_counter() - self._start - (self._untimed() - self._untimed_before)
        values = _metric_results(model)
        values.update(self._window_loss(model))
        values["learning_rate"] = number(model.optimizer.learning_rate)
        norm = getattr(model.optimizer, "gradient_norm", None)
        if norm is not None:
            values["gradient_norm"] = number(norm)
        values.update(self._speed(batches, seconds))
        self.last = values
        self._write("train", values, step, self._epoch)

    def _speed(self, batches: range, seconds: float) -> dict[str, float]:
        values: dict[str, float] = {}
        if hasattr(self.batches, "batch_shape"):
            positions = sum(rows * (s + t) for rows, s, t in self._shapes(batches))
            values["padding"] = 1 - self._tokens(batches) / positions
        first = batches.stop if self._timed_from is None else self._timed_from
        untimed = set() if self.budget is None else self.budget.untimed
        timed = [batch for batch in range(first, batches.stop) if batch not in untimed]
        if not timed:
            return values
        values["seconds"] = seconds
        values["batches_per_second"] = len(timed) / seconds
        if hasattr(self.batches, "tokens_in_batch"):
            values["tokens_per_second"] = self._tokens(timed) / seconds
        if self.flops is not None and hasattr(self.batches, "batch_shape"):
            rate = sum(self.flops(*shape) for shape in self._shapes(timed)) / seconds
            values["flops_per_second"] = rate
            if self.peak:
                values["mfu"] = rate / self.peak
        return values

    def _tokens(self, batches: Iterable[int]) -> int:
        return sum(sum(self.batches.tokens_in_batch(*self._located(index))) for index in batches)

    def _shapes(self, batches: Iterable[int]) -> list[tuple[int, int, int]]:
        return [self.batches.batch_shape(*self._located(index)) for index in batches]

    def _window_loss(self, model: keras.Model) -> dict[str, float]:
        """Mean loss since the last entry, from the running sums of Keras' loss metric."""
        for metric in model.metrics:
            if metric.name == "loss" and isinstance(metric, keras.metrics.Mean):
                before = self._loss_sums
                self._loss_sums = (number(metric.total), number(metric.count))
                total, count = (self._loss_sums[i] - before[i] for i in (0, 1))
                return {"loss": total / count} if count else {}
        return {}

    def _write(self, kind: str, values: Mapping[str, float], step: int, epoch: int) -> None:
        if self.writer is not None:
            # What the other writer draws is not drawn twice.
            left_out = {"seconds"} if self.validation_writer is None else {"seconds", "val_loss"}
            for name, value in values.items():
                if name not in left_out:
                    self.writer.scalar(_tag(kind, name), value, step)
            self.writer.flush()
        if self.validation_writer is not None and "val_loss" in values:
            self.validation_writer.scalar(_tag("train", "loss"), values["val_loss"], step)
            self.validation_writer.flush()
        if self.log is not None:
            self.log.write({"kind": kind, "update": step, "epoch": epoch, **values})


def _metric_results(model: keras.Model) -> dict[str, float]:
    """Return the metrics as this process has them: `get_metrics_result` may ask the others, too."""
    results: dict[str, Any] = {}
    for metric in model.metrics:
        result = metric.result()
        results.update(result if isinstance(result, Mapping) else {metric.name: result})
    return logged_numbers(results)


def _tag(kind: str, name: str) -> str:
    """Return where TensorBoard shows a number. It unfolds the first two groups of the alphabet."""
    measure = name.removeprefix("val_")
    if name == "val_loss":
        return "quality/validation_loss"
    if measure != name:
        return f"{'quality' if measure in QUALITY else 'validation'}/{measure}"
    if kind == "epoch":
        return f"train/epoch_{name}"
    if kind == "train" and name in GROUPS:
        return f"{GROUPS[name]}/{name}"
    if kind == "train" and name.endswith("_per_second"):
        return f"work/{name}"
    return f"{kind}/{name}"
