"""The moving average of a model's weights: used in their place, and read from a checkpoint."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_attention.training.checkpoint_store import WEIGHTS
from keras_attention.training.checkpoints import average_checkpoints
from keras_attention.utils.run_folder import CHECKPOINT


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
