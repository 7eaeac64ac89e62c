"""Our own presets: the folder that Keras and KerasHub read, with a file that says what is in it.

Reading one needs neither Keras nor a backend: the weights are named in Keras' HDF5 file by our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.data.formats.common import UNSAID, Format, Loaded
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.export_folder import MANIFEST
from keras_attention.interop.foreign import Settings, checked, read_foreign_json
from keras_attention.spec.files import from_json
from keras_attention.spec.options import DROPOUTS
from keras_attention.spec.parts import SpecError
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.folder import Folder

# Keras' names, and KerasHub's folder of a tokenizer.
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
TOKENIZER = "assets/tokenizer"
# What KerasHub asks for beside it: the class that reads that folder.
TOKENIZER_CONFIG = "tokenizer.json"
TOKENIZER_CLASS = {
    "module": "keras_attention.keras_hub",
    "class_name": "TransformerTokenizer",
    "config": {},
    "registered_name": "keras_attention>TransformerTokenizer",
}
CARD, CARD_TEXT = "card.json", "README.md"
# Arguments of `Transformer` that a spec does not have; its name and dtype are not among them.
MODEL_OPTIONS = (*DROPOUTS, "recompute", "seed")
REMEDY = "Download or copy the preset again."
PRESET = Folder("preset that `Translator.save_to_preset` wrote", MANIFEST, "sample", REMEDY)
# What a search takes; a search of that length would take all memory.
MOST = {"beam_size": 1000, "length_penalty": 10.0, "max_extra_length": 1_000_000}


def sniff(folder: Path) -> bool:
    """Whether a folder is a preset of ours, or a model of Keras or a preset of KerasHub of whatever class."""
    is_keras = all((folder / name).is_file() for name in (CONFIG, METADATA, WEIGHTS))
    return is_keras or (folder / MANIFEST).is_file()


def read(folder: Path) -> Loaded:
    """Read a preset of ours."""
    if not (folder / MANIFEST).is_file():
        raise ValueError(
            f"'{folder}' is a model of Keras or a preset of KerasHub, and has no {MANIFEST}, which "
            "`Translator.save_to_preset` writes. Load it with `keras.saving.load_model`, or with KerasHub."
        )
    manifest = PRESET.read(folder)
    try:
        return Loaded(
            _read_spec(folder, manifest["spec"]),
            Tokenizer.load(folder / TOKENIZER),
            *_read_options(folder, manifest),
            {**UNSAID, **manifest["model_options"]},
            read_foreign_json(folder / CARD, dict),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(folder / MANIFEST, f"it is not understood: {error!r}") from None


FORMAT = Format(
    "preset", f"a preset of keras_attention ({MANIFEST}, {WEIGHTS} and others)", sniff, read
)


def _read_spec(folder: Path, written: Any) -> TransformerSpec:
    """Return the model that is written so, with weights as float32 NumPy arrays."""
    spec = from_json(written)
    if not isinstance(spec, TransformerSpec):
        raise TypeError(f"a {type(spec).__name__} is no TransformerSpec")
    names = list(spec.weights().values())
    if not all(isinstance(name, str) for name in names):
        raise TypeError("the name of a weight is no text")
    file = folder / WEIGHTS
    weights = _read_weights(file, names)
    spec = checked(lambda: spec.map_weights(weights.__getitem__), file)
    try:
        spec.options()
    except SpecError as error:
        raise SpecError(f"'{folder / MANIFEST}': {error}") from None
    return spec


def _read_options(folder: Path, manifest: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Return the search settings of a preset, and the length of the longest source in its training."""
    path = folder / MANIFEST
    settings = Settings(manifest["options"], path)
    options = {
        "beam_size": settings.number("beam_size"),
        "length_penalty": settings.get("length_penalty", float),
        "max_extra_length": settings.number("max_extra_length", least=0),
    }
    for name, most in MOST.items():
        if not 0 <= options[name] <= most:
            raise _damaged(path, f"{name!r} is not from 0 to {most:,}: {options[name]!r}")
    if unknown := manifest["model_options"].keys() - set(MODEL_OPTIONS):
        raise _damaged(path, f"its model_options name {', '.join(sorted(unknown))}")
    longest = manifest.get("longest_source")
    if longest is not None:
        longest = Settings(manifest, path).number("longest_source")
    return options, longest


def _read_weights(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    import h5py  # which Keras needs

    try:
        with h5py.File(path, "r") as file:
            found = {name: _dataset(file, name) for name in names}
            total = sum(dataset.id.get_storage_size() for dataset in found.values())
            if total > path.stat().st_size:
                raise ValueError("its weights overlap")
            return {name: np.asarray(dataset[()], "float32") for name, dataset in found.items()}
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise _damaged(path, f"{error}") from None


def _dataset(file: Any, name: str) -> Any:
    """Return an array of an HDF5 file if all its numbers are in this file, each once."""
    import h5py

    place = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if type(link) is not h5py.HardLink:  # A soft or external one leads elsewhere.
            raise KeyError(f"it has no array {name!r}")
        place = place[part]
    if not isinstance(place, h5py.Dataset) or place.is_virtual or place.external:
        raise KeyError(f"{name!r} is no array in this file")
    is_number = place.dtype.kind == "f" and place.dtype.itemsize in (2, 4, 8)
    # Anything packed, or of which nothing is stored, could become larger than the file.
    if not is_number or place.id.get_storage_size() != place.nbytes:
        raise ValueError(f"{name!r} is no array of plain numbers")
    return place


def _damaged(path: Path, problem: str) -> DamagedFile:
    return DamagedFile(f"'{path}' is damaged: {problem}. {REMEDY}")
