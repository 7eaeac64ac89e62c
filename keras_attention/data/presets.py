"""One door to pretrained models: a folder, or a handle of a model on a hub."""

from __future__ import annotations

import os
from typing import Any

from keras_attention.data.preset_folders import Preset, is_foreign, read_folder
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.foreign import POSITIONS
from keras_attention.interop.hub import download, is_handle
from keras_attention.spec.files import load_spec
from keras_attention.spec.presets import PRESETS
from keras_attention.utils.checks import check_choice, check_path
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder


def is_preset(name: Any) -> bool:
    """Whether a name is meant as a pretrained model, and not as a model's size.

    >>> is_preset("hf://Helsinki-NLP/opus-mt-en-de"), is_preset("runs/demo"), is_preset("base")
    (True, True, False)
    """
    if isinstance(name, os.PathLike):
        return True
    if not isinstance(name, str) or name in PRESETS:
        return False
    return is_handle(name) or os.sep in name or os.path.isdir(name)


def is_run(preset: str | os.PathLike[str]) -> bool:
    """Whether a folder is a run's, finished or not, and no model of another program."""
    if is_handle(preset):
        return False
    folder = check_path("preset", preset)
    return not is_foreign(folder) and RunFolder(folder).config.is_file()


def read_preset(preset: str | os.PathLike[str] | Preset, positions: str = POSITIONS[0]) -> Preset:
    """Read a pretrained model, if that is not done yet; see `Translator.from_preset`."""
    if isinstance(preset, Preset):
        return preset
    check_choice("positions", positions, POSITIONS)
    folder = download(str(preset)) if is_handle(preset) else check_path("preset", preset)
    return _of_run(RunFolder(folder)) if is_run(folder) else read_folder(folder, positions)


def _of_run(run: RunFolder) -> Preset:
    settings = run.settings(SEARCH_SETTINGS)
    run.check_finished()
    search = {name: settings[name] for name in SEARCH_SETTINGS}
    tokenizer = Tokenizer.load(run.tokenizer)
    return Preset(load_spec(run.spec), tokenizer, search, run.longest_source())
