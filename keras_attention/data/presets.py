"""One door to pretrained models: those of the package, runs, folders, and handles of models on a hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from keras_attention.data.formats import (
    ctranslate2,
    firefox,
    hugging_face,
    marian,
    onnx,
    own_preset,
    run,
)
from keras_attention.data.formats.common import Format, Loaded
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.foreign import POSITIONS
from keras_attention.interop.hub import download, is_handle
from keras_attention.spec.presets import PRESETS, TRAINED
from keras_attention.utils.checks import check_choice, check_path, did_you_mean

# The first that knows a folder reads it: our exports, which have the manifest of a preset, too, are models of
# others, and every program has a config.json. A further format is a file, and an entry here.
FORMATS = (
    ctranslate2.FORMAT,
    hugging_face.FORMAT,
    onnx.FORMAT,
    own_preset.FORMAT,
    firefox.FORMAT,
    marian.FORMAT,
    run.FORMAT,
)
SHOWN = 12


def load(preset: str | os.PathLike[str] | Loaded, positions: str = POSITIONS[0]) -> Loaded:
    """Read a pretrained model, if that is not done yet; see `Translator.from_preset` for what it takes."""
    if isinstance(preset, Loaded):
        return preset
    check_choice("positions", positions, POSITIONS)
    folder = preset_folder(preset)
    if folder.is_file():
        raise ValueError(
            f"'{folder}' is a file, and a model is a folder. Unpack it (`python -m zipfile -e "
            f"{folder.name} FOLDER`), and give the folder."
        )
    if not folder.is_dir():
        hint = " Download its files, unpack them, and give their folder." * (
            "https:" in str(preset)
        )
        raise FileNotFoundError(f"There is no folder '{folder}'.{hint}")
    found = format_of(folder)
    if found is None:
        names = sorted(file.name for file in folder.iterdir())
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ValueError(
            f"'{folder}' holds no model that is known: it has {', '.join(names[:SHOWN]) or 'no file'}{more}. "
            f"Expected: {'; '.join(each.says for each in FORMATS)}."
        )
    if found.has_positions:
        return found.read(folder, positions)
    if positions != POSITIONS[0]:
        raise ValueError(f"'{folder}' is {found.says}: its `positions` are {POSITIONS[0]!r}.")
    return found.read(folder)


def format_of(preset: str | os.PathLike[str]) -> Format | None:
    """Return the format of a pretrained model's folder; None if none is known, or there is no folder."""
    folder = preset_folder(preset)
    return next((each for each in FORMATS if each.sniff(folder)), None)


def is_run(preset: str | os.PathLike[str]) -> bool:
    """Whether a folder is a run's, finished or not, and no preset or model of another program."""
    return not is_handle(preset) and format_of(preset) is run.FORMAT


def is_preset(name: Any) -> bool:
    """Whether a name is meant as a pretrained model, and not as a model's size.

    >>> is_preset("hf://Helsinki-NLP/opus-mt-en-de"), is_preset("demo_en_de"), is_preset("base")
    (True, True, False)
    """
    if isinstance(name, os.PathLike):
        return True
    if not isinstance(name, str) or name in PRESETS:
        return False
    return name in TRAINED or is_handle(name) or os.sep in name or os.path.isdir(name)


def catalogue() -> dict[str, dict[str, Any]]:
    """Return what is known of the package's models and of public ones, by their handles or addresses.

    That their files are of a format that is read was checked in a list of them that `source` names.
    `published` is a score that its maker has published, measured by nobody here.

    >>> catalogue()["hf://facebook/m2m100_418M"]["family"]
    'M2M-100'
    """
    rows = json.loads((Path(__file__).parent / "catalogue.json").read_text("utf-8"))
    return {row["handle"]: row for row in rows}


def tokenizer_of_preset(preset: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer of a pretrained model; see `Translator.from_preset` for what it takes."""
    return load(preset).tokenizer


# Here, because a tokenizer does not know what reads folders that hold one.
Tokenizer.from_preset = staticmethod(tokenizer_of_preset)


def preset_folder(preset: str | os.PathLike[str]) -> Path:
    """Return the folder of a preset, which need not exist if a path is given.

    A folder here, such as a run's, goes before the package's model of the same name.
    """
    if isinstance(preset, str) and preset in TRAINED and not os.path.isdir(preset):
        return Path(__file__).resolve().parents[1] / "presets" / preset
    if is_handle(preset):
        return download(str(preset))
    folder = check_path("preset", preset)
    if isinstance(preset, str) and os.sep not in preset and not folder.exists():
        size = " It is the size of an untrained model." if preset in PRESETS else ""
        raise FileNotFoundError(
            f"There is no folder '{preset}' and no trained model of this name.{size}"
            f"{did_you_mean(preset, TRAINED)} The package has {', '.join(TRAINED)}; or give a folder, or a "
            "handle such as hf://owner/name."
        )
    return folder
