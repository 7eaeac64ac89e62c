"""Selecting checkpoints and averaging them (section 6.1 of the paper); the moving average of weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_attention.training.checkpoint_store import (
    LORA,
    WEIGHTS,
    BuiltModel,
    averages,
    build_optimizer,
    check_same_model,
    load_lora_weights,
    write_checkpoint,
)
from keras_attention.utils.arguments import Count, NotNegative, checked
from keras_attention.utils.checks import check_intervals
from keras_attention.utils.run_folder import CHECKPOINT

AVERAGE = dataclasses.replace(CHECKPOINT, key="averaged_from")


@checked
def list_checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoints that `Checkpoints` wrote in a folder, oldest first."""
    found = Path(folder).glob("update-*")
    return sorted(path for path in found if (path / CHECKPOINT.manifest).exists())


@checked
def select_checkpoints(
    folder: str | os.PathLike[str],
    last: Count = 5,
    minutes: NotNegative | None = None,
    updates: Count | None = None,
) -> list[Path]:
    """Choose the checkpoints of a run to average; one from before the first update only if it is alone.

    The paper averages the last 5 (base) or 20 (big) of those written every 10 minutes: `minutes=10`.

    Args:
        folder: Folder in which `Checkpoints` writes.
        last: Largest number of checkpoints; the newest is always among them. Defaults to 5.
        minutes: Choose one checkpoint per this many minutes of training; 0 for all. Defaults to None:
            one per epoch, at its end, and the newest. That does not depend on the speed of the machine.
        updates: Instead of `minutes`: choose the checkpoints after each multiple of this number of
            updates. That does not depend on the speed of the machine either.

    Returns:
        Their paths, oldest first.

    Raises:
        ValueError: If an argument is out of range, `minutes` and `updates` are both given, or there is no
            checkpoint.
    """
    check_intervals(minutes, updates)
    found = [(path, CHECKPOINT.read(path, verify=False)) for path in list_checkpoints(folder)]
    if not found:
        raise ValueError(f"There are no checkpoints in '{folder}'.")
    if len(found) > 1 and not found[0][1]["updates"]:
        del found[0]
    *earlier, (newest, _) = found
    if updates is not None:
        chosen = [path for path, manifest in earlier if manifest["updates"] % updates == 0]
        chosen.append(newest)
    elif minutes is None:
        chosen = [path for path, manifest in earlier if manifest["batch"] == 0]
        chosen.append(newest)  # The training may have ended there, within an epoch.
    elif minutes == 0:
        chosen = [path for path, _ in found]
    else:
        # The first checkpoint of each interval: later ones never change that choice. Counting back from
        # the newest would change it each time, so all checkpoints would have to be kept.
        firsts: dict[int, Path] = {}
        for path, manifest in found:
            firsts.setdefault(int(manifest["seconds"] // (60 * minutes)), path)
        firsts[max(firsts)] = newest
        chosen = list(firsts.values())
    return chosen[-last:]


@checked
def average_checkpoints(model: BuiltModel, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Set the weights of a model to the plain mean of checkpoints (section 6.1 of the paper).

    The mean is computed in float64, weight by weight. The step counter and the other state of the
    optimizer come from the last checkpoint. `Checkpoints` refuses to continue training from an average.

    Args:
        model: A built model with the same variables as the checkpoints.
        paths: Checkpoints, or files written by `Model.save_weights`; oldest first.

    Raises:
        DamagedFile: If a checkpoint was changed after it was written.
        FileNotFoundError: If a path does not exist.
        ValueError: If `paths` is empty, or one does not fit the model. The model is then unchanged,
            unless the path is a file of `Model.save_weights`.

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    >>> folder, paths = tempfile.mkdtemp(), []
    >>> for value in (1.0, 2.0, 6.0):
    ...     model.set_weights([np.array([[value]])])
    ...     paths.append(f"{folder}/{value}.weights.h5")
    ...     model.save_weights(paths[-1])
    >>> average_checkpoints(model, paths)
    >>> model.get_weights()[0].tolist()
    [[3.0]]
    """
    if not paths:
        raise ValueError(
            "`paths` is empty: there are no checkpoints to average. Pass at least one file."
        )
    files = [_checked_file(model, Path(path)) for path in paths]
    # Counters and seeds have no mean: the last checkpoint's are kept.
    weights = [v for v in model.weights if "float" in keras.backend.standardize_dtype(v.dtype)]
    sums: list[Any] = [np.zeros(v.shape, "float64") for v in weights]
    for file in files:
        _load(model, file)
        for total, variable in zip(sums, weights, strict=True):
            total += keras.ops.convert_to_numpy(variable).astype("float64")
    for variable, total in zip(weights, sums, strict=True):
        variable.assign(
            (total / len(paths)).astype(keras.backend.standardize_dtype(variable.dtype))
        )
    averages[model] = ", ".join(Path(path).name for path in paths)


@checked
def save_average(
    model: BuiltModel,
    path: str | os.PathLike[str],
    paths: Sequence[str | os.PathLike[str]],
    overwrite: bool = False,
    average: Callable[[keras.Model, Sequence[Any]], None] = average_checkpoints,
) -> None:
    """Average checkpoints and save the result as a checkpoint that is marked as an average.

    `load_checkpoint` reads it only with `allow_average=True`.

    Args:
        model: As for `average_checkpoints`. It has the average afterwards.
        path: The folder to make.
        paths: Checkpoints, oldest first.
        overwrite: Whether to replace an average at `path`. Anything else there is never replaced.
            Defaults to False.
        average: Called with the model and the checkpoints; sets the weights. Defaults to their plain mean.

    Raises:
        OccupiedPath: If there is something at `path` that may not be replaced.
    """
    AVERAGE.check_destination(path, overwrite)
    average(model, paths)
    record = {"averaged_from": [Path(source).name for source in paths]}
    write_checkpoint(path, model, record, replace=True)


def _checked_file(model: keras.Model, path: Path) -> Path:
    """Return the weights file of a checkpoint, after checking that it is intact and fits the model."""
    if path.is_dir():
        build_optimizer(model)
        check_same_model(model, CHECKPOINT.read(path), path)
        return path / WEIGHTS
    if not path.exists():
        raise FileNotFoundError(f"There is no checkpoint '{path}'.")
    return path


def _load(model: keras.Model, file: Path) -> None:
    try:
        model.load_weights(file)
        if (file.parent / LORA).exists():
            # In float32, where Keras has merged in the precision of the computation.
            load_lora_weights(model, file.parent)
            getattr(model, "merge_lora", lambda: None)()
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"'{file}' cannot be averaged: it does not fit the model, or is not a weights file. {error}"
        ) from error


@contextlib.contextmanager
def with_moving_average(model: keras.Model) -> Iterator[None]:
    """Give a compiled model the moving average of its weights for as long as the block runs.

    Does nothing if its optimizer keeps none, or before its first update. In a callback, pass `self.model`: on
    JAX, this brings its weights up to date.
    """
    optimizer: Any = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of `LossScaleOptimizer`
    pairs = list(getattr(optimizer, "moving_averages", ()))
    if not pairs or int(keras.ops.convert_to_numpy(optimizer.iterations)) == 0:
        yield
        return
    numbers = keras.ops.convert_to_numpy
    own = [np.array(numbers(variable)) for variable, _ in pairs]  # PyTorch's share the memory.
    try:
        for variable, average in pairs:
            variable.assign(np.array(numbers(average)))
        yield
    finally:
        for (variable, _), value in zip(pairs, own, strict=True):
            variable.assign(value)


def load_moving_average(model: keras.Model, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Set the weights of a built model to the moving average that the last of some checkpoints holds."""
    path = Path(paths[-1])
    manifest = CHECKPOINT.read(path)
    if not manifest.get("moving_average"):
        raise ValueError(f"The checkpoint '{path}' holds no moving average of the weights.")
    average_checkpoints(model, [path])  # Refuses another model's; sets what has no moving average.
    if manifest.get("updates") == 0:  # Averages begin with the first update.
        return
    names = [name for name, _ in manifest["variables"]["model"]]
    slots = [name for name, _ in manifest["variables"]["optimizer"]]
    with h5py.File(path / WEIGHTS) as file:
        values = file["optimizer"]["vars"]
        for weight, slot in manifest["moving_average"]:
            variable: Any = model.weights[names.index(weight)]
            variable.assign(values[str(slots.index(slot))][()])
