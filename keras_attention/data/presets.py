"""One door to pretrained models: those of the package, folders, and handles of models on a hub."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_attention.data.model_card import card_of_run
from keras_attention.data.preset_folders import Preset, is_foreign, read_folder
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.foreign import POSITIONS
from keras_attention.interop.hub import download, is_handle
from keras_attention.interop.own_preset import MODEL_OPTIONS
from keras_attention.spec.files import load_spec
from keras_attention.spec.presets import PRESETS, TRAINED
from keras_attention.utils.checks import check_choice, check_path, did_you_mean
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder


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


def is_run(preset: str | os.PathLike[str]) -> bool:
    """Whether a folder is a run's, finished or not, and no preset or model of another program."""
    if is_handle(preset):
        return False
    folder = preset_folder(preset)
    return not is_foreign(folder) and RunFolder(folder).config.is_file()


def read_preset(preset: str | os.PathLike[str] | Preset, positions: str = POSITIONS[0]) -> Preset:
    """Read a pretrained model, if that is not done yet; see `Translator.from_preset`."""
    if isinstance(preset, Preset):
        return preset
    check_choice("positions", positions, POSITIONS)
    folder = preset_folder(preset)
    if is_run(folder):
        return preset_of_run(folder, lambda run: load_spec(run.spec))
    return read_folder(folder, positions)


def tokenizer_of_preset(preset: str | os.PathLike[str]) -> Tokenizer:
    """Return the tokenizer of a pretrained model; see `Translator.from_preset` for what it takes."""
    return read_preset(preset).tokenizer


# Here, because a tokenizer does not know what reads folders that hold one.
Tokenizer.from_preset = staticmethod(tokenizer_of_preset)


def preset_of_run(folder: str | os.PathLike[str], load: Callable[[RunFolder], Any]) -> Preset:
    """Return a finished run as a preset."""
    run = RunFolder(check_path("folder", folder))
    settings = run.settings(SEARCH_SETTINGS)
    run.check_finished()
    return Preset(
        load(run),
        Tokenizer.load(run.tokenizer),
        {name: settings[name] for name in SEARCH_SETTINGS},
        run.longest_source(),
        _model_options(run),
        card_of_run(run),
    )


def _model_options(run: RunFolder) -> dict[str, Any]:
    """Return the model's arguments that are not in the spec, from what Keras has saved."""
    try:
        with zipfile.ZipFile(run.model) as archive:
            config = json.loads(archive.read("config.json"))["config"]
        return {name: config[name] for name in MODEL_OPTIONS if name in config}
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError) as error:
        raise DamagedFile(f"'{run.model}' is damaged: {error!r}. Restore it from a copy.") from None


def preset_folder(preset: str | os.PathLike[str]) -> Path:
    """Return the folder of a preset, which need not exist if a path is given."""
    if isinstance(preset, str) and preset in TRAINED:
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
