"""Writes checkpoints while a model trains, and restores what was trained from them."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np

from keras_attention.callbacks.base import RunCallback, Stop, logged_numbers
from keras_attention.training.checkpoint_store import (
    averages,
    check_resumable,
    first_nonfinite,
    load_checkpoint,
    set_aside,
    write_checkpoint,
)
from keras_attention.training.checkpoints import list_checkpoints, select_checkpoints
from keras_attention.training.distribution import computing_alone
from keras_attention.utils.arguments import Count, Has, NotNegative, Positive, checked
from keras_attention.utils.checks import check_intervals
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
        for callback in stateful:
            if isinstance(callback, RunCallback):
                callback.counter = self
        self.epoch = self.batch = self.updates = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self.finished = False
        self.nonfinite: str | None = None
        self.running_metrics: list[Any] | None = None
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
        self.epoch, self.batch = manifest["epoch"], manifest["batch"]
        self.updates = self._saved_updates = manifest["updates"]
        self.seconds = manifest["seconds"]
        self._saved_interval = self._interval()
        self.history = manifest["history"]
        self.finished = manifest["kind"] == "end"
        self.running_metrics = manifest["metrics"] if self.batch else None
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
        if self.running_metrics is not None:
            variables = self.model.metrics_variables
            for variable, value in zip(variables, self.running_metrics, strict=True):
                variable.assign(np.array(value, keras.backend.standardize_dtype(variable.dtype)))
            self.running_metrics = None

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
                "updates": self.updates,
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
