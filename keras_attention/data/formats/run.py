"""Folders of runs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_attention.data.formats.common import Format, Loaded
from keras_attention.data.formats.own_preset import MODEL_OPTIONS
from keras_attention.data.model_card import card_of_run
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.spec.files import load_spec
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder


def sniff(folder: Path) -> bool:
    """Whether a folder has settings, finished or not; those of other programs are known before."""
    return RunFolder(folder).config.is_file()


def read(
    folder: Path, load_model: Callable[[RunFolder], Any] = lambda run: load_spec(run.spec)
) -> Loaded:
    """Read the folder of a finished run, whose spec needs no Keras, or with another model of it."""
    run = RunFolder(folder)
    settings = run.settings(SEARCH_SETTINGS)
    run.check_finished()
    return Loaded(
        load_model(run),
        Tokenizer.load(run.tokenizer),
        {name: settings[name] for name in SEARCH_SETTINGS},
        run.longest_source(),
        _model_options(run),
        card_of_run(run),
    )


FORMAT = Format("run", "the folder of a finished run", sniff, read)


def _model_options(run: RunFolder) -> dict[str, Any]:
    """Return the model's arguments that are not in the spec, from what Keras has saved."""
    try:
        with zipfile.ZipFile(run.model) as archive:
            config = json.loads(archive.read("config.json"))["config"]
        return {name: config[name] for name in MODEL_OPTIONS if name in config}
    except Exception as error:  # Damaged bytes raise errors of many kinds there.
        raise DamagedFile(f"'{run.model}' is damaged: {error!r}. Restore it from a copy.") from None
