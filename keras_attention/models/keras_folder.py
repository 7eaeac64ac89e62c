"""A model in Keras' files: that of a run, and the folder that has each weight of a spec in its HDF5 file."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.data.formats.own_preset import METADATA, WEIGHTS
from keras_attention.models.transformer import Transformer
from keras_attention.spec import SpecError, TransformerSpec
from keras_attention.utils.forks import check_process
from keras_attention.utils.run_folder import RunFolder


def model_of_run(run: RunFolder) -> Transformer:
    """Return the model that a finished run has saved, for inference."""
    check_process()
    return keras.saving.load_model(run.trained_model(), compile=False)


def write_keras_folder(
    folder: Path, spec: TransformerSpec, options: Mapping[str, Any], in_float16: bool = False
) -> dict[str, str]:
    """Write a spec of float32 arrays as the files that `keras.saving.load_model` reads.

    `options` are arguments of `Transformer` that are not in the spec. Matrices may be stored in float16,
    which has to hold their values exactly. Returns for each weight's path in the spec its name in the HDF5
    file.
    """
    # Variables have their own precision, computation that of the spec.
    dtype = spec.dtype if spec.dtype in ("float32", "float64") else f"mixed_{spec.dtype}"
    model = Transformer.from_spec(spec, dtype=dtype, **options)
    model.save(folder, zipped=False)
    metadata = json.loads((folder / METADATA).read_text("utf-8"))
    metadata["parameter_count"] = model.count_params()
    (folder / METADATA).write_text(json.dumps(metadata, indent=2), "utf-8")
    if in_float16:
        _store_matrices_in_float16(folder / WEIGHTS)
    names = _names_by_content(folder / WEIGHTS)
    places = {}
    for path, weight in spec.weights().items():
        # Of arrays with the same content, either is right.
        place = names.get(_content(weight))
        if place is None:
            raise SpecError(f"Keras has not saved the model's weight {path!r} with its value.")
        places[path] = place
    return places


def _content(array: np.ndarray) -> tuple[tuple[int, ...], str]:
    """Return the shape of an array and a checksum of its numbers, which finds it again."""
    numbers = np.ascontiguousarray(array, "float32")
    return array.shape, hashlib.sha256(numbers.tobytes()).hexdigest()


def _names_by_content(path: Path) -> dict[tuple[tuple[int, ...], str], str]:
    import h5py

    names = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            names[_content(item[()])] = name

    with h5py.File(path, "r") as file:
        file.visititems(add)
    return names


def _store_matrices_in_float16(path: Path) -> None:
    """Write the HDF5 file again, with its matrices in half the space."""
    import h5py

    smaller = path.with_suffix(".float16")
    with h5py.File(path, "r") as source, h5py.File(smaller, "w") as target:

        def copy(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                is_matrix = item.dtype.kind == "f" and item.ndim > 1
                value = item[()]
                target.create_dataset(name, data=value.astype("float16") if is_matrix else value)
            else:
                target.create_group(name)
            target[name].attrs.update(item.attrs)

        source.visititems(copy)
        target.attrs.update(source.attrs)
    smaller.replace(path)
