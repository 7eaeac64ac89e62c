"""Writes checkpoints while a model trains, and continues training exactly from them."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np

from keras_attention.callbacks.base import RunCallback, Stop, logged_numbers, updates_of
from keras_attention.training.checkpoint_store import (
    averages,
    check_resumable,
    first_nonfinite,
    load_checkpoint,
    set_aside,
    write_checkpoint,
)
from keras_attention.training.checkpoints import (
    check_intervals,
    list_checkpoints,
    select_checkpoints,
)
from keras_attention.training.distribution import computing_alone
from keras_attention.training.input_pipeline import endless_batches
from keras_attention.utils.arguments import Count, Has, NotNegative, Positive, checked
from keras_attention.utils.files import (
    DamagedFile,
    check_still_there,
    remove_folder,
    remove_leftovers,
)
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import CHECKPOINT


class Checkpoints(RunCallback):
    """Writes checkpoints while a model trains, keeps the last few, and restores training exactly.

    One is written at the end of each epoch, at the end of training, after a signal, and within epochs as
    often as asked. Each is a folder `update-<number>`, complete or absent; see `write_checkpoint`.
    `fit_resumably` continues from one as if nothing had happened: with the next batch, the next dropout
    masks, the running metrics, and the logs of the earlier epochs.

    Args:
        folder: Folder of the checkpoints; made if absent. Leftovers of killed processes are deleted.
        keep: Number of checkpoints to keep among those that `select_checkpoints(folder, keep,
            average_minutes, average_updates)` chooses. Unless it is 1, the last two are always kept.
        stop: The `Stop` of the training: an epoch that a signal cuts short is completed later.
        every_minutes: Minutes of training between checkpoints within an epoch; None for none.
        every_updates: Updates between checkpoints within an epoch; None for none.
        average_minutes, average_updates: Distance between the checkpoints to be averaged. If both are
            None, one per epoch. See `select_checkpoints`.
        stateful: Callbacks to save as well, with `get_state()`, JSON-serialisable, and `set_state(state)`.
            If one has a set of numbers as `milestones`, the checkpoints after so many updates are written
            and kept.
        write: Whether this process writes. Only one of several processes should. Defaults to True.

    Attributes:
        epoch: Number of complete epochs.
        batch: Number of batches done in the current epoch.
        seconds: Seconds of training, over all starts of a run.
        history: The logs of all epochs.
        finished: Whether the last checkpoint is from the end of a training.
        nonfinite: Which values were infinite or NaN and ended the training; else None.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), keep=2)
    >>> data = np.ones((4, 3)), np.ones((4, 1))
    >>> history = model.fit(*data, epochs=3, callbacks=[checkpoints], verbose=0)
    >>> [path.name for path in checkpoints.paths]
    ['update-00000002', 'update-00000003']
    >>> checkpoints.restore(model)
    3
    """

    @checked
    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: Count = 5,
        stop: Stop | None = None,
        every_minutes: Positive | None = None,
        every_updates: Count | None = None,
        average_minutes: NotNegative | None = None,
        average_updates: Count | None = None,
        stateful: Sequence[Annotated[Any, Has("callbacks", "get_state", "set_state")]] = (),
        write: bool = True,
    ):
        super().__init__(stop)
        self.folder = Path(folder)
        self.keep = keep
        self.write = write
        self.every_minutes = every_minutes
        self.every_updates = every_updates
        check_intervals(average_minutes, average_updates, "average_")
        self.average_minutes = average_minutes
        self.average_updates = average_updates
        self.stateful = {type(callback).__name__: callback for callback in stateful}
        if len(self.stateful) != len(stateful):
            raise ValueError(f"`stateful` may hold one callback of a class. Received: {stateful!r}")
        self.epoch = self.batch = self.updates = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self.finished = False
        self.nonfinite: str | None = None
        self._metrics: list[Any] | None = None
        self._saved_updates: int | None = None
        self._saved_interval = 0
        self._started = time.monotonic()
        if write:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.folder)

    @property
    def paths(self) -> list[Path]:
        """Paths of the checkpoints, oldest first."""
        return list_checkpoints(self.folder)

    def restore(self, model: keras.Model) -> int:
        """Load the last intact checkpoint into a compiled model.

        A damaged checkpoint is reported on the console and renamed, and the one before it is used.

        Returns:
            The number of complete epochs; 0 if there is no checkpoint.

        Raises:
            ValueError: If the checkpoint is another model's, none is intact, or the optimizer is refused.
        """
        check_resumable(model)
        manifest = self._last_intact(lambda path: load_checkpoint(model, path))
        if manifest is not None:
            self._take(manifest)
            if self.write:
                self._delete_old()  # A process killed between writing and deleting left one too many.
        return self.epoch if manifest is not None else 0

    def set_damaged_aside(self) -> None:
        """Rename damaged checkpoints after the last intact one, if this process writes.

        With several processes, call it in the one that writes before all of them call `restore`.

        Raises:
            ValueError: If no checkpoint is intact.
        """
        if self.write:
            self._last_intact(CHECKPOINT.read)

    def rewind(self, is_outdated: Callable[[dict[str, Any]], bool]) -> bool:
        """Delete the newest checkpoints, back to the last intact one that is not outdated.

        `is_outdated` says of a manifest whether training must not continue from it. Returns whether there was
        anything to delete. Only the process that writes deletes. If all intact checkpoints are outdated, a
        ValueError says so, and none is deleted.
        """
        outdated, paths = [], self.paths if self.write else []
        for path in reversed(paths):
            try:
                if is_outdated(CHECKPOINT.read(path, verify=False)):
                    outdated.append(path)
                    continue
                if outdated:
                    CHECKPOINT.read(path)
                break
            except DamagedFile:
                continue
        else:
            if outdated:
                raise ValueError(
                    f"The learning rate of the run in '{self.folder.parent}' has begun to fall, and the "
                    "checkpoint from before is gone. So its budget cannot change: give the old one."
                )
        for path in outdated:  # From the newest: a process killed meanwhile leaves a valid rest.
            remove_folder(path)
        return bool(outdated)

    def _last_intact(self, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any] | None:
        """Return what `read` returns for the last intact checkpoint; None if there is no checkpoint."""
        paths = self.paths
        for path in reversed(paths):
            try:
                return read(path)
            except DamagedFile as error:
                aside = set_aside(path) if self.write else path
                say(f"{error} The checkpoint is kept as '{aside.name}'; the one before it is used.")
        if paths:
            raise ValueError(
                f"None of the {len(paths)} checkpoints in '{self.folder}' is intact. To start from "
                "scratch, choose another folder."
            )
        return None

    def _take(self, manifest: dict[str, Any]) -> None:
        """Restore the state of this callback from a checkpoint's manifest."""
        self.epoch, self.batch = manifest["epoch"], manifest["batch"]
        self.updates = self._saved_updates = manifest["updates"]
        self.seconds = manifest["seconds"]
        self._saved_interval = self._interval()
        self.history = manifest["history"]
        self.finished = manifest["kind"] == "end"
        self._metrics = manifest["metrics"] if self.batch else None
        for name, state in manifest["callbacks"].items():
            if name in self.stateful:
                self.stateful[name].set_state(state)

    def on_train_begin(self, logs: Any = None) -> None:
        check_resumable(self.model)
        if averages.get(self.model):
            raise ValueError(
                f"The weights of the model are the average of {averages[self.model]}. Load a checkpoint "
                "before training. If you mean to train the average, load it with "
                "`load_checkpoint(..., allow_average=True)`."
            )
        # If a training ended within an epoch, that epoch is in the logs already; it is continued now.
        self.history = [entry for entry in self.history if entry["epoch"] <= self.epoch]
        self._started = time.monotonic() - self.seconds

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        if self._metrics is not None:
            variables = self.model.metrics_variables
            for variable, value in zip(variables, self._metrics, strict=True):
                variable.assign(np.array(value, keras.backend.standardize_dtype(variable.dtype)))
            self._metrics = None

    def before_update(self, batch: int) -> None:
        self.batch = batch
        self.seconds = time.monotonic() - self._started
        if self._due():
            self._save("interval")
        self.batch += 1
        self.updates += 1

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        self.history.append(
            {
                "epoch": epoch + 1,
                "updates": updates_of(self.model),
                "seconds": round(self.seconds, 3),
                **logged_numbers(logs),
            }
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.seconds = time.monotonic() - self._started
        super().on_epoch_end(epoch, logs)
        if not self.stop.within_epoch:
            self.epoch, self.batch = epoch + 1, 0
        self.finished = self.model.stop_training and not self.stop.interrupts
        self._save("end" if self.finished else "signal" if self.stop.within_epoch else "epoch")

    def _interval(self) -> int:
        return 0 if self.every_minutes is None else int(self.seconds // (60 * self.every_minutes))

    def _due(self) -> bool:
        if self.updates == self._saved_updates:
            return False
        if self.updates in self._milestones():
            return True
        if self.every_updates is not None and self.updates % self.every_updates == 0:
            return self.updates > 0
        return self._interval() > self._saved_interval

    @activity("writing a checkpoint")
    def _save(self, kind: str) -> None:
        """Write a checkpoint, unless the state is not finite."""
        model = self.model
        self.nonfinite = first_nonfinite(model)
        if self.nonfinite is not None:
            model.stop_training, self.finished = True, False
            return
        if self.write:
            record = {
                "kind": kind,
                "epoch": self.epoch,
                "batch": self.batch,
                "updates": self.updates,
                "seconds": round(self.seconds, 3),
                "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "callbacks": {name: c.get_state() for name, c in self.stateful.items()},
                "history": self.history,
            }
            check_still_there(self.folder)
            with computing_alone():
                write_checkpoint(self._path(self.updates), model, record)
            self._delete_old()
        self._saved_updates, self._saved_interval = self.updates, self._interval()

    def _delete_old(self) -> None:
        paths = self.paths
        kept = {*paths[-min(2, self.keep) :]}
        kept.update(
            select_checkpoints(self.folder, self.keep, self.average_minutes, self.average_updates)
        )
        kept.update(map(self._path, self._milestones()))
        for path in paths:
            # Users keep notes in them.
            if path not in kept and CHECKPOINT.is_ours(path, verify=False):
                remove_folder(path)

    def _milestones(self) -> set[int]:
        callbacks = self.stateful.values()
        return set().union(*(getattr(callback, "milestones", ()) for callback in callbacks))

    def _path(self, updates: int) -> Path:
        return self.folder / f"update-{updates:08d}"


@checked
def fit_resumably(
    model: Annotated[keras.Model, Has("a compiled Keras model", "fit")],
    batches: Annotated[Any, Has("TokenBatches", "batch", "signature")],
    checkpoints: Annotated[Checkpoints, Has("`Checkpoints`", "epoch", "batch")],
    callbacks: Sequence[Any],
    epochs: Count = sys.maxsize,
) -> None:
    """Train as `model.fit(batches)` does, from the state that `checkpoints.restore(model)` loaded.

    The rest of an incomplete epoch comes first. Callbacks do not notice: they see a single training, and
    the numbers of the batches in their epoch.

    Args:
        model: A compiled model.
        batches: `TokenBatches`.
        checkpoints: The `Checkpoints` of the run; must be among the callbacks.
        callbacks: Keras callbacks, called in this order.
        epochs: Total number of epochs. Defaults to no limit.

    Raises:
        ValueError: If the training cannot be resumed, because of its optimizer, a callback or other batches.
        FloatingPointError: If training was stopped because a gradient or a weight was not finite.
    """
    if checkpoints not in callbacks:
        raise ValueError("`checkpoints` must be among `callbacks`.")
    check_resumable(model, [c for c in callbacks if c not in checkpoints.stateful.values()])
    epoch, start = checkpoints.epoch, checkpoints.batch
    if checkpoints.updates != epoch * len(batches) + start:
        raise ValueError(
            f"'{checkpoints.folder}' ends after {checkpoints.updates:,} updates, at batch {start:,} of "
            f"epoch {epoch + 1:,}, but an epoch has {len(batches):,} batches now: other arguments, or an "
            "earlier version of this package, made other batches. Continue with those, or begin anew in "
            "another folder."
        )
    _make_metrics(model, batches, checkpoints)
    model.fit(
        endless_batches(batches, epoch, start),
        epochs=epochs,
        initial_epoch=epoch,
        steps_per_epoch=len(batches),
        shuffle=False,  # Keras warns of generators without.
        verbose=0,
        callbacks=_FromBatch(callbacks, start, len(batches), epochs, model),
    )
    if checkpoints.nonfinite is not None:
        raise FloatingPointError(
            f"Training was stopped at update {checkpoints.updates}, because "
            f"{checkpoints.nonfinite} are not finite. The earlier checkpoints are unchanged."
        )


class _FromBatch(keras.callbacks.CallbackList):
    """Callbacks of a training whose first epoch begins with batch `start`, and ends where it would."""

    def __init__(
        self, callbacks: Sequence[Any], start: int, steps: int, epochs: int, model: keras.Model
    ):
        super().__init__(list(callbacks), add_history=True, model=model, epochs=epochs, steps=steps)
        self.start, self.steps = start, steps
        self.stopped: bool | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_begin(self.start + batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(self.start + batch, logs)
        if self.start and self.start + batch + 1 == self.steps:
            # Keras would go on with as many batches as an epoch has.
            self.stopped, self.model.stop_training = self.model.stop_training, True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.stopped is not None:
            self.model.stop_training, self.stopped = self.stopped, None
        self.start = 0
        super().on_epoch_end(epoch, logs)


def _make_metrics(model: keras.Model, batches: Any, checkpoints: Checkpoints) -> None:
    """Make the variables of compiled metrics, which Keras makes only with the first batch."""
    saved = checkpoints._metrics
    if saved is not None and len(saved) != len(model.metrics_variables):
        model.test_on_batch(*batches.batch(checkpoints.epoch, 0))
