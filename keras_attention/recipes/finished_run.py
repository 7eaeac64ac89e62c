"""A finished run, opened from its folder."""

from __future__ import annotations

import functools
import os
from typing import Any

from keras_attention.data.formats.run import read
from keras_attention.models.keras_folder import model_of_run
from keras_attention.recipes.chosen_checkpoints import ChosenCheckpoints
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.run import Run
from keras_attention.utils.arguments import checked
from keras_attention.utils.run_folder import RunFolder


class FinishedRun(Run):
    """A finished run, opened from its folder alone: its text need not be there any more."""

    @checked
    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = RunFolder(folder)
        self.resolved = Resolved.of_settings(self.settings)
        found = read(self.folder.path, model_of_run)
        self.model, self.tokenizer = found.spec, found.tokenizer
        if self.settings.get("lora"):  # so that checkpoints fit
            self.model.enable_lora(self.settings["lora"])
        # Weights of checkpoints are wanted, not the state of an optimizer.
        self.model.compile(optimizer=None)
        self.config = self.resolved.config
        self.report = self.folder.finished_report()

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings in the folder."""
        needed = ("beam_size", "length_penalty", "averaged_checkpoints", "dtype", "languages")
        return self.folder.settings(needed)

    @property
    def chosen(self) -> ChosenCheckpoints:
        """The checkpoints that stand for the run; its config lacks what is of the model it started from."""
        return ChosenCheckpoints(self.folder, self.settings)

    @functools.cached_property
    def _batches(self) -> tuple[Any, Any]:
        return self.resolved.found_batches(self.settings, self.tokenizer, self.folder.store)

    @property
    def peak(self) -> float:
        """FLOP/s of all devices when the run was trained: another measure would give another share."""
        cost = (self.report or {}).get("evaluation", {}).get("training_cost") or {}
        return cost.get("peak") or super().peak
