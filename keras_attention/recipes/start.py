"""What a run begins from: text, settings, folder. It needs no Keras, so a wrong start is refused at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from keras_attention.data.corpus import Corpus
from keras_attention.data.mixture import parse_mixture
from keras_attention.data.presets import Preset, read_preset
from keras_attention.data.word_alignments import WordAlignments
from keras_attention.recipes.config import BUDGET, NEWER, TranslationConfig
from keras_attention.spec.options import DROPOUTS
from keras_attention.spec.presets import preset_arguments
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.checks import check_boolean, check_has, depths_of
from keras_attention.utils.cooldown import finishing_steps
from keras_attention.utils.lazily import check_event_files, check_moses
from keras_attention.utils.run_folder import RunFolder

FOLLOWS_BUDGET = (
    "the learning rate of that run falls from its peak to the end of its budget, which therefore cannot "
    "change. End the run now with --finish, or start another one with --cooldown 0.2, whose budget can change"
)


@functools.lru_cache(maxsize=2)
def start_of(preset: str) -> Preset:
    """Return the pretrained model that a run starts from; read once in a process."""
    found = read_preset(preset)
    if not isinstance(found.spec, TransformerSpec):
        found.spec.options()  # Files of ONNX, which say that they cannot be trained.
    return found


def model_arguments(config: TranslationConfig) -> dict[str, Any]:
    """Return the arguments of the model: a pretrained one has its own dropout, unless a rate is named."""
    if config.start_from is None:
        return config.model_arguments
    known = start_of(config.start_from).model_options
    # Rates of 0 that are the default of `Transformer` go without saying.
    own = {name: known[name] for name in DROPOUTS if known.get(name) or name == "dropout"}
    return {**own, **config.model_arguments}


def guided_head(config: TranslationConfig) -> tuple[int, int] | None:
    """Return the head that learns given alignments, its layer and its number; None if none does."""
    if config.guided_alignment is None:
        return None
    if config.start_from is None:
        arguments = {**preset_arguments(config.preset), **config.model_arguments}
        layers, heads = depths_of(arguments["num_layers"])[1], arguments["num_heads"]
    else:
        spec = start_of(config.start_from).spec
        layers, heads = len(spec.decoder.blocks), spec.num_heads
    # The paper's choice: the last layer but one.
    layer, head = config.guided_alignment_head or (max(0, layers - 2), 0)
    if layer >= layers or head >= heads:
        raise ValueError(
            f"`guided_alignment_head` must be a layer from 0 to {layers - 1} and a head from 0 to "
            f"{heads - 1}, which the model's decoder has. Received: {config.guided_alignment_head}"
        )
    return layer, head


class Start:
    """What a run begins from, and whether its folder allows it.

    With `finish`, a run ends as soon as it can. One whose learning rate has a cool-down begins it now: the
    result is that of a run whose budget was so small from the start. Others end at their last checkpoint.
    `set_budget` gives `config` the budget of this start.
    """

    # Settings beside those of `TranslationConfig` that identify a run, and those that may change.
    more_settings: Mapping[str, Any] = {}
    more_changeable: tuple[str, ...] = ()
    scores_translations = True

    def __init__(
        self, corpus: Corpus, config: TranslationConfig, folder: RunFolder, finish: bool = False
    ):
        check_has("corpus", corpus, "a Corpus", "splits", "train", "validation")
        check_has("config", config, "a TranslationConfig", "preset", "steps")
        check_boolean("finish", finish)
        self.corpus = corpus
        self.config = config
        self.folder = folder
        self.finish = finish

    @functools.cached_property
    def alignments(self) -> WordAlignments | None:
        """The word alignments that a head learns, if there are some."""
        given = self.config.guided_alignment
        return None if given is None else WordAlignments(self.corpus, given)

    def check(self) -> None:
        """Refuse what this start asks of the folder, as far as that is known without a backend."""
        self.check_packages()
        self.set_budget()
        self.folder.check(self.settings, (*self.changeable, "row_multiple"), self.reasons)

    def check_packages(self) -> None:
        """Raise an ImportError if the logs or the report will need a package that is missing."""
        check_event_files()
        if self.scores_translations:
            check_moses()

    @property
    def row_multiple(self) -> int:
        """The number that divides the rows of a batch, before the devices are known."""
        return self.config.row_multiple

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that identify the run, as `config.json` has them."""
        corpus, config = self.corpus, self.config
        settings = dataclasses.asdict(config)
        for name in NEWER:
            if settings[name] == getattr(TranslationConfig, name):
                del settings[name]
        parse_mixture(config.mixture, corpus.parts)  # Refuses other names.
        if config.mixture:
            settings["parts"] = {name: text.fingerprint() for name, text in corpus.parts.items()}
        head = guided_head(config)
        if head is not None and self.alignments is not None:
            settings["guided_alignment_head"] = [*head]
            settings["guided_alignment_sha256"] = self.alignments.fingerprint
        if config.start_from is None:  # as runs had it before there was a choice
            del settings["start_from"], settings["freeze"]
        else:
            settings["start_fingerprint"] = start_of(config.start_from).fingerprint()
            settings["model_arguments"] = model_arguments(config)
        return {
            **settings,
            "row_multiple": self.row_multiple,
            "corpus": corpus.name,
            "languages": [corpus.source_language, corpus.target_language],
            **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
            **self.more_settings,
        }

    @property
    def changeable(self) -> tuple[str, ...]:
        """The settings that may differ from those in the folder; all of the budget if the run ends now."""
        ends = BUDGET if self.finish else ()
        return (*self.config.changeable, *ends, *self.more_changeable)

    @property
    def reasons(self) -> dict[str, str]:
        """Why the budget may not change, where `changeable` lacks it."""
        return dict.fromkeys(BUDGET, FOLLOWS_BUDGET)

    def set_budget(self) -> None:
        """Give the settings the budget of this start; refuse one that leaves nothing to do."""
        done = self.folder.last_checkpoint()
        if not done:
            if self.finish:
                raise ValueError(
                    f"--finish: the run in '{self.folder.path}' has no checkpoint yet. Train first, or give "
                    "its folder."
                )
            return
        state = done["callbacks"].get("Budget", {})
        if self.finish:
            budget = self._least_budget(done["updates"], state.get("cooldown"))
            self.config = dataclasses.replace(self.config, **budget)
        elif self.config.cooldown is not None:
            there = self.folder.settings()
            if any(there.get(name) != getattr(self.config, name) for name in BUDGET):
                self._check_rest(
                    {"updates": done["updates"], **state, **(state.get("cooldown") or {})}
                )

    def _least_budget(self, updates: int, cools: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the budget that ends a run as soon as it can be."""
        report = self.folder.finished_report() or {}
        if report.get("training", {}).get("updates") == updates:
            return {name: report["config"].get(name) for name in BUDGET}
        if cools is None:
            share = self.config.cooldown or 0.0
            return {"steps": finishing_steps(max(1, updates), share), "minutes": None}
        if cools["steps"] is None:
            return dict(zip(BUDGET, cools["limits"], strict=True))
        return {"steps": cools["steps"], "minutes": None, "patience": cools["limits"][0]}

    def _check_rest(self, spent: Mapping[str, Any]) -> None:
        """Refuse a budget that leaves nothing in which the learning rate can fall."""
        minutes = spent["seconds"] / 60
        for name, done, spoken in (
            ("steps", spent["updates"], f"{spent['updates']:,} updates"),
            ("minutes", minutes, f"{minutes:.1f} minutes"),
        ):
            limit = getattr(self.config, name)
            if limit is not None and limit <= done:
                raise ValueError(
                    f"The run in '{self.folder.path}' has trained {spoken} at its full learning rate, so "
                    f"--{name} {limit:,} leaves nothing in which the rate can fall. Nothing was changed. "
                    "Give a larger budget, or end the run now with --finish."
                )
