"""Checkpoints on disk, and their average (section 6.1 of the paper)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np


def save_weights_atomically(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Save the state of a model and its optimizer so that a crash leaves the old file or the new one.

    Args:
        model: A built model; its optimizer's state is saved with it.
        path: A file name that ends in `.weights.h5`.
    """
    path = Path(path)
    partial = path.with_name(f".partial-{path.name}")
    model.save_weights(partial)
    os.replace(partial, path)


def average_checkpoints(model: keras.Model, paths: Sequence[str | os.PathLike[str]]) -> None:
    """Set the weights of a model to the plain mean of checkpoints (section 6.1 of the paper).

    The mean is formed in float64, variable by variable. The state of the optimizer and of the dropout
    is that of the last checkpoint.

    Args:
        model: A built model of the same shape as the checkpoints.
        paths: Files written by `save_weights_atomically` or `Model.save_weights`, oldest first.

    Raises:
        ValueError: If there is no checkpoint, or one does not fit the model.

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    >>> folder, paths = tempfile.mkdtemp(), []
    >>> for value in (1.0, 2.0, 6.0):
    ...     model.set_weights([np.array([[value]])])
    ...     paths.append(f"{folder}/{value}.weights.h5")
    ...     save_weights_atomically(model, paths[-1])
    >>> average_checkpoints(model, paths)
    >>> model.get_weights()[0].tolist()
    [[3.0]]
    """
    if not paths:
        raise ValueError("There are no checkpoints to average. Pass at least one file.")
    sums: list[Any] = [0.0] * len(model.trainable_variables)
    for path in paths:
        model.load_weights(path)
        for index, variable in enumerate(model.trainable_variables):
            sums[index] = sums[index] + keras.ops.convert_to_numpy(variable).astype("float64")
    for variable, total in zip(model.trainable_variables, sums, strict=True):
        variable.assign((total / len(paths)).astype(np.dtype(variable.dtype)))
