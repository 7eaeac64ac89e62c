"""A finished run, opened from its folder."""

from __future__ import annotations

import functools
import os
from typing import Any

import keras

from keras_attention.data.tokenizer import Tokenizer
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.run import Run
from keras_attention.utils.arguments import checked
from keras_attention.utils.run_folder import RunFolder


class FinishedRun(Run):
    """A finished run, opened from its folder alone: its text need not be there any more."""

    @checked
    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = RunFolder(folder)
        known = self.settings
        self.folder.check_finished()
        self.resolved = Resolved.of_settings(known)
        self.config = self.resolved.config
        self.report = self.folder.finished_report()

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings in the folder."""
        needed = ("beam_size", "length_penalty", "averaged_checkpoints", "dtype", "languages")
        return self.folder.settings(needed)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer."""
        return Tokenizer.load(self.folder.tokenizer)

    @functools.cached_property
    def _batches(self) -> tuple[Any, Any]:
        return self.resolved.found_batches(self.settings, self.tokenizer, self.folder.store)

    @functools.cached_property
    def model(self) -> Transformer:
        """The trained model, for inference."""
        model = keras.saving.load_model(self.folder.trained_model(), compile=False)
        # Weights of checkpoints are wanted, not the state of an optimizer.
        model.compile(optimizer=None)
        return model

    @property
    def peak(self) -> float:
        """FLOP/s of all devices when the run was trained: another measure would give another share."""
        cost = (self.report or {}).get("evaluation", {}).get("training_cost") or {}
        return cost.get("peak") or super().peak
