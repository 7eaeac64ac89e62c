"""Checkpoints on disk: a folder each, written whole or not at all, and verified when it is read."""

import errno
import itertools
import os
import re
import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import keras
import numpy as np

from keras_attention.utils.arguments import Has, checked
from keras_attention.utils.backend import running_backend
from keras_attention.utils.files import atomic_folder, check_still_there
from keras_attention.utils.run_folder import CHECKPOINT

WEIGHTS, LORA = "model.weights.h5", "lora.npz"
# Errors of a full disk, or of one on which an HDF5 file could not be closed.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# Keras' callbacks that remember earlier epochs, or load weights when a training begins or ends.
FORGETFUL = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.EarlyStopping,
    keras.callbacks.ReduceLROnPlateau,
)

# Models whose weights are an average, with its sources. Training one further is rarely intended.
averages: weakref.WeakKeyDictionary[keras.Model, str] = weakref.WeakKeyDictionary()

BuiltModel = Annotated[keras.Model, Has("a built Keras model", "weights", "load_weights")]


def write_checkpoint(
    path: str | os.PathLike[str], model: keras.Model, record: dict[str, Any], replace: bool = False
) -> None:
    """Write the whole state of a compiled and built model as a checkpoint.

    Weights and optimizer go into `model.weights.h5`, where Keras merges kernels with LoRA; their parts go
    into `lora.npz`. `manifest.json` holds the record, the sha256 of these files, the names and shapes of all
    variables, and what Keras does not save: the states of the random generators and the running metrics. If
    the process is killed at any moment, the checkpoint is complete or absent. An existing folder is deleted
    afterwards with `replace`, and renamed without.
    """
    path = Path(path)
    try:
        with atomic_folder(path, replace=True) as partial:
            save_weights(model, partial / WEIGHTS)
            parts = _lora_weights(model)
            if parts:
                numbers = {name: keras.ops.convert_to_numpy(v) for name, v in parts.items()}
                np.savez(partial / LORA, **numbers)
            CHECKPOINT.seal(partial, {**record, **_state(model)})
            if path.exists() and not replace:
                set_aside(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            check_still_there(path.parent)
        remedy = "Free some space on that disk" if error.errno in FULL else "See to that"
        raise OSError(
            error.errno,
            f"Could not write the checkpoint '{path}' of about {_bytes_of(model) / 1e6:,.0f} MB: "
            f"{error.__cause__ or error}. The checkpoints before it are unchanged. {remedy}, then run the "
            "same command again: it continues from the last of them.",
        ) from error


def save_weights(model: keras.Model, file: Path) -> None:
    """Call `Model.save_weights`, but raise an OSError if the disk is full, which HDF5 handles badly."""
    # Closing an HDF5 file on a full disk can end the process, so the space is checked first.
    if shutil.disk_usage(file.parent).free < 1.02 * _bytes_of(model) + 2**16:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        model.save_weights(file)
    except RuntimeError as error:  # h5py's, where closing a file fails.
        raise OSError(errno.EIO, str(error)) from error


@checked
def load_checkpoint(
    model: BuiltModel, path: str | os.PathLike[str], allow_average: bool = False
) -> dict[str, Any]:
    """Load the state of a checkpoint into a model: weights, optimizer, random generators.

    Args:
        model: A built model like the one that was saved; compiled, if training is to go on.
        path: A folder made by `Checkpoints`, `write_checkpoint` or `save_average`.
        allow_average: Whether the checkpoint may be an average. Training one further is rarely
            intended: its moments belong to the last checkpoint, its weights to none. Defaults to False.

    Returns:
        The manifest of the checkpoint.

    Raises:
        DamagedFile: If a file is missing or was changed after it was written.
        ValueError: If the checkpoint belongs to another model, or is an average.
    """
    manifest = CHECKPOINT.read(path)
    if manifest.get("averaged_from") and not allow_average:
        raise ValueError(
            f"'{path}' is the average of {', '.join(manifest['averaged_from'])}. Continue training from "
            "the last of these, or pass `allow_average=True` if you mean the average."
        )
    build_optimizer(model)
    check_same_model(model, manifest, path)
    model.load_weights(Path(path) / WEIGHTS)
    load_lora_weights(model, Path(path))
    drawn = manifest["random_states"]
    for variable, state in zip(_random_states(model), drawn, strict=True):
        variable.assign(np.array(state, keras.backend.standardize_dtype(variable.dtype)))
    averages[model] = ", ".join(manifest.get("averaged_from", ()))
    return manifest


def load_lora_weights(model: keras.Model, path: Path) -> None:
    """Give layers with LoRA their parts in a checkpoint, after Keras has loaded merged kernels."""
    parts = _lora_weights(model)
    if parts:
        with np.load(path / LORA, allow_pickle=False) as saved:
            for name, variable in parts.items():
                variable.assign(saved[name])


def _lora_weights(model: keras.Model) -> dict[str, Any]:
    layers: dict[str, Any] = getattr(model, "lora_layers", dict)()
    return {f"{path}.{v.name}": v for path, layer in layers.items() for v in layer.variables}


def check_resumable(model: keras.Model, callbacks: Sequence[Any] = ()) -> None:
    """Refuse trainings that no checkpoint can continue as if nothing had happened."""
    for optimizer in _optimizers(_optimizer(model)):
        own = type(optimizer).finalize_variable_values
        if optimizer.use_ema or own is not keras.optimizers.Optimizer.finalize_variable_values:
            name = type(optimizer).__name__ + ("(use_ema=True)" if optimizer.use_ema else "")
            raise ValueError(
                f"A training with the optimizer {name} cannot be resumed: at the end of each `fit`, Keras "
                "replaces the weights (`finalize_variable_values`; with `use_ema`, by their moving average), "
                "and a training that was stopped has more such ends. Compile the model without it; "
                "`keras_attention.Adam(moving_average=0.999)` keeps a moving average beside the weights, and "
                "`average_checkpoints` gives the average of checkpoints after the training."
            )
    check_callbacks(callbacks)
    if getattr(model, "steps_per_execution", 1) != 1:
        raise ValueError("`steps_per_execution` must be 1: a training may stop after every batch.")


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuse callbacks with a state that is lost when a training stops; see `check_resumable`."""
    for callback in callbacks:
        if isinstance(callback, FORGETFUL):
            raise ValueError(
                f"A training with the callback {type(callback).__name__} cannot be resumed: checkpoints do "
                "not hold what it remembers, or it loads weights. Leave it out. To stop where nothing "
                "improves, use `StopWithoutGain` and `Checkpoints(stateful=[...])`; to lower the learning "
                "rate, a schedule."
            )


def _optimizers(optimizer: Any) -> list[Any]:
    """Return an optimizer, or those that it wraps."""
    inner = getattr(optimizer, "optimizers", None) or [getattr(optimizer, "inner_optimizer", None)]
    if inner == [None]:
        return [] if optimizer is None else [optimizer]
    return [found for one in inner for found in _optimizers(one)]


def build_optimizer(model: keras.Model) -> None:
    """Make the variables of a model's optimizer, if the model is compiled."""
    optimizer = _optimizer(model)
    if (
        optimizer is not None and not optimizer.built
    ):  # A `LossScaleOptimizer` would add to its own.
        optimizer.build(model.trainable_variables)


def check_same_model(
    model: keras.Model, manifest: dict[str, Any], path: str | os.PathLike[str]
) -> None:
    """Raise a ValueError unless the variables of a checkpoint have the model's names and shapes."""
    for part, own in _named_variables(model).items():
        saved = manifest["variables"][part]
        if part == "optimizer" and not (own and saved):
            continue  # Only weights are wanted, or only weights were saved.
        if len(own) != len(saved):
            difference = f"it has {len(saved)} variables of the {part}, the model {len(own)}"
        else:
            pairs = zip(saved, own, strict=True)
            different = [pair for pair in pairs if _anonymous(pair[0]) != _anonymous(pair[1])]
            if not different:
                continue
            (there, there_shape), (here, here_shape) = different[0]
            difference = (
                f"{len(different)} of {len(own)} variables of the {part} differ, the first: "
                f"'{there}' {tuple(there_shape)} there, '{here}' {tuple(here_shape)} in the model"
            )
        raise ValueError(
            f"The checkpoint '{path}' is another model's: {difference}. Nothing was changed. Build "
            "the model with the settings of that run, or choose another folder."
        )


def set_aside(path: Path) -> Path:
    """Rename a checkpoint so that it is no longer used as one; return its new path."""
    names = (path.with_name(f"aside-{count}-{path.name}") for count in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    os.rename(path, aside)
    return aside


def first_nonfinite(model: keras.Model) -> str | None:
    """Return where the state of a model is not finite, or None. Such a state must not be saved."""
    update = getattr(_optimizer(model), "first_nonfinite", None)
    if update is not None and int(keras.ops.convert_to_numpy(update)) > 0:
        return f"the gradients of update {int(keras.ops.convert_to_numpy(update))}"
    for variable in _variables(model):
        # If an entry is not finite, neither is the sum, which is computed on the variable's device.
        total = keras.ops.sum(keras.ops.cast(variable, "float32"))
        if not np.isfinite(keras.ops.convert_to_numpy(total)):
            return f"the values of '{variable.path}'"
    return None


def _state(model: keras.Model) -> dict[str, Any]:
    """Return what a manifest says of a model."""
    numbers = keras.ops.convert_to_numpy
    optimizer = _optimizer(model)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of `LossScaleOptimizer`
    pairs = getattr(optimizer, "moving_averages", ())
    moving = {"moving_average": [[v.path, average.path] for v, average in pairs]}
    return {
        "keras": keras.version(),
        "backend": running_backend(),
        "random_states": [numbers(state).tolist() for state in _random_states(model)],
        "metrics": [numbers(state).tolist() for state in model.metrics_variables],
        "variables": _named_variables(model),
        **(moving if pairs else {}),
    }


def _bytes_of(model: keras.Model) -> int:
    return sum(int(np.prod(v.shape)) * np.dtype("float32").itemsize for v in _variables(model))


def _optimizer(model: keras.Model) -> Any:
    """Return the optimizer, or None: a model that is not compiled has no such attribute."""
    return getattr(model, "optimizer", None)


def _variables(model: keras.Model) -> list[Any]:
    optimizer = _optimizer(model)
    return [*model.weights, *(() if optimizer is None else optimizer.variables)]


def _named_variables(model: keras.Model) -> dict[str, list[Any]]:
    optimizer = _optimizer(model)
    parts = {"model": model.weights, "optimizer": [] if optimizer is None else optimizer.variables}
    return {part: [[v.path, list(v.shape)] for v in variables] for part, variables in parts.items()}


def _anonymous(named: list[Any]) -> tuple[str, tuple[int, ...]]:
    """Drop the numbers that Keras adds to the names of later models in a process: dense_7 is dense."""
    path, shape = named
    return re.sub(r"_\d+(?=[/_]|$)", "", path), tuple(shape)


def _random_states(model: keras.Model) -> list[Any]:
    return [v for v in model.variables if v.path.endswith("seed_generator_state")]
