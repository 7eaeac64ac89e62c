"""A run, opened from its folder: a finished one, or the translator of a checkpoint of any."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from keras_attention.data.formats.run import read
from keras_attention.data.model_card import card_of_run
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.models.keras_folder import model_of_run
from keras_attention.recipes.chosen_checkpoints import ChosenCheckpoints
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.run import Run
from keras_attention.training.checkpoints import average_checkpoints
from keras_attention.utils.arguments import checked
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder


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


# What the card of a run says of its checkpoints, too.
KNOWN = ("languages", "corpus", "alignment")


@checked
def checkpoint_translator(
    folder: str | os.PathLike[str], checkpoint: str = "last", **options: Any
) -> Translator:
    """Like `Translator.from_run`, with a checkpoint of a run, which need not be finished.

    Args:
        folder: The folder of the run. It is only read, so the run may be training.
        checkpoint: `"last"`, or `"average"` of those that the run would average if it ended now, or
            `"best"` by the run's `best_by`, or a checkpoint's name, such as `"update-00000400"`. With `ema`,
            all but `"last"` stand for the moving average in a checkpoint. Defaults to `"last"`.
        **options: Arguments of `Translator` that override those of the run.

    Raises:
        ValueError: If there is no run in the folder, or it has no such checkpoint.
        DamagedFile: If the checkpoint was changed after it was written.

    Example:

    ```python
    translator = checkpoint_translator("runs/mine", "average")
    ```
    """
    run = RunFolder(Path(folder))
    settings = run.settings((*SEARCH_SETTINGS, "preset", "averaged_checkpoints"))
    run.check_checkpoint(checkpoint)
    chosen = ChosenCheckpoints(run, settings)
    paths = chosen.named(checkpoint)
    tokenizer = Tokenizer.load(run.tokenizer)
    is_finished = run.model.exists()
    # A finished run needs the model that it started from no more.
    resolved = Resolved.of_settings(settings, with_start=not is_finished)
    if resolved.start and resolved.start.fingerprint() != settings["start_fingerprint"]:
        raise ValueError(
            f"The run in '{run.path}' started from another model than that in "
            f"'{settings['start_from']}', so its checkpoints do not fit. Put the old one there."
        )
    if is_finished and settings.get("start_from"):
        model = FinishedRun(folder).model
    else:
        model = resolved.untrained_model(tokenizer.vocabulary_size)
    load = average_checkpoints if checkpoint == "last" else chosen.load
    load(model, paths)
    # Scores and costs are those of the finished model.
    card = {name: value for name, value in card_of_run(run).items() if name in KNOWN}
    search = {name: settings[name] for name in SEARCH_SETTINGS}
    known = {"longest_source": run.longest_source(), "card": card}
    return Translator(model, tokenizer, **{**search, **known, **options})
