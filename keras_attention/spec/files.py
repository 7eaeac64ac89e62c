"""A spec in a folder: its settings as JSON, its weights as a NumPy archive with a checksum.

Reading one executes no code, and needs neither Keras nor a backend.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.spec import parts, transformer
from keras_attention.spec.parts import SpecError, as_array
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile, atomic_folder
from keras_attention.utils.folder import Folder, OtherFolder

WEIGHTS = "weights.npz"
REMEDY = "Move this folder away: a run is read from its model.keras then, with Keras."
SPEC = Folder("spec", "spec.json", "spec", REMEDY)


def save_spec(spec: TransformerSpec, folder: str | os.PathLike[str]) -> None:
    """Write a spec with its current weights, in float32, to a folder, whole or not at all.

    A spec in the folder is replaced, and nothing else: an OccupiedPath is raised then.
    """
    SPEC.check_destination(folder, overwrite=True)
    spec.validate()
    weights = {path: as_array(weight) for path, weight in spec.weights().items()}
    paths = iter(weights)
    with atomic_folder(folder, replace=True) as partial:
        np.savez(partial / WEIGHTS, **weights)  # type: ignore[arg-type]
        # Both go through the weights in the same order.
        SPEC.seal(partial, {"spec": as_json(spec.map_weights(lambda weight: next(paths)))})


def load_spec(folder: str | os.PathLike[str]) -> TransformerSpec:
    """Read what `save_spec` wrote; a SpecError says that there is none, or one of another version."""
    folder = Path(folder)
    try:
        declaration = SPEC.read(folder)
    except OtherFolder as error:
        raise SpecError(f"{error} `Translator.from_run` loads the model itself.") from None
    with np.load(folder / WEIGHTS, allow_pickle=False) as weights:
        try:
            spec = from_json(declaration["spec"]).map_weights(lambda path: weights[path])
        except (KeyError, TypeError) as error:
            raise DamagedFile(
                f"'{folder / SPEC.manifest}' is not understood: {error}. {REMEDY}"
            ) from None
    spec.validate()
    return spec


def as_json(value: Any) -> Any:
    """Return a spec, or a part of one, as JSON can hold it, if what it has as weights is JSON."""
    if dataclasses.is_dataclass(value):
        fields = {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"part": type(value).__name__, **fields}
    return [as_json(each) for each in value] if isinstance(value, tuple) else value


def from_json(value: Any) -> Any:
    """Return what `as_json` made JSON of; raise a KeyError or TypeError for what no spec can hold."""
    if isinstance(value, dict):
        fields = {name: from_json(each) for name, each in value.items()}
        part = _part(fields.pop("part"))
        kinds = typing.get_type_hints(part)
        # Finished runs name, as None, an option that parts had when they were written.
        fields = {name: each for name, each in fields.items() if name in kinds or each is not None}
        for name, kind in kinds.items():
            if name in fields and not _fits(fields[name], kind):
                raise TypeError(f"{part.__name__} cannot have {name}={value[name]!r:.60}")
        return part(**fields)
    return tuple(map(from_json, value)) if isinstance(value, list) else value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type that a field of a part may have."""
    inner = typing.get_args(kind)
    if kind is Any:  # a weight
        return True
    if typing.get_origin(kind) is tuple:  # of any length
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if inner:
        return any(_fits(value, each) for each in inner)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def _part(name: Any) -> Any:
    """Return the dataclass of this name; a file may name nothing else."""
    part = {**vars(parts), **vars(transformer)}.get(name) if isinstance(name, str) else None
    if isinstance(part, type) and dataclasses.is_dataclass(part):
        return part
    raise KeyError(f"no part is called {name!r}")
