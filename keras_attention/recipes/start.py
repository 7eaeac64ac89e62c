"""What a start of a run asks for, and whether its folder allows it; needs no Keras, so it is said at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from keras_attention.data.corpus import Corpus
from keras_attention.data.mixture import parse_mixture
from keras_attention.data.presets import Preset, read_preset
from keras_attention.recipes.config import BUDGET, NEWER, NOT_IN_A_MODEL, TranslationConfig
from keras_attention.utils.cooldown import finishing_steps
from keras_attention.utils.run_folder import RunFolder

FOLLOWS_BUDGET = (
    "the learning rate of that run falls from its peak to the end of its budget, which therefore cannot "
    "change. End the run now with --finish, or start another one with --cooldown 0.2, whose budget can change"
)
FREEZES = (
    "kappa and alpha of a Weighted Transformer are frozen at a share of its updates, whose number therefore "
    "cannot change. End the run now with --finish, or start another one"
)


@functools.lru_cache(maxsize=2)
def start_of(preset: str) -> Preset:
    """Return the pretrained model that a run starts from; read once in a process."""
    return read_preset(preset)


def model_arguments(config: TranslationConfig) -> dict[str, Any]:
    """Return the arguments of the model: a pretrained one has the dropout that it was trained with.

    Args:
        config: The run's settings, whose `model_arguments` say otherwise, if they name a rate.
    """
    if config.start_from is None:
        return config.model_arguments
    known = start_of(config.start_from).model_options
    # Rates of 0 that are the default of `Transformer` go without saying.
    own = {name: known[name] for name in NOT_IN_A_MODEL if known.get(name) or name == "dropout"}
    return {**own, **config.model_arguments}


def reasons(config: TranslationConfig) -> dict[str, str]:
    """Why the budget of a run may not change, where `config.changeable` lacks it."""
    falls = config.peak_learning_rate is not None and config.cooldown is None
    return {"steps": FOLLOWS_BUDGET if falls else FREEZES, "minutes": FOLLOWS_BUDGET}


def run_settings(
    corpus: Corpus, config: TranslationConfig, row_multiple: int | None = None
) -> dict[str, Any]:
    """Return the settings that identify a run.

    Args:
        corpus: The text.
        config: The run's settings.
        row_multiple: What the number of devices makes of that setting.
    """
    settings = dataclasses.asdict(config)
    for field in dataclasses.fields(config):
        if field.name in NEWER and settings[field.name] == field.default:
            del settings[field.name]
    parse_mixture(config.mixture, corpus.parts)  # Refuses other names.
    if config.mixture:
        settings["parts"] = {name: text.fingerprint() for name, text in corpus.parts.items()}
    if config.start_from is None:  # as runs had it before there was a choice
        del settings["start_from"], settings["freeze"]
    else:
        settings["start_fingerprint"] = start_of(config.start_from).fingerprint()
        settings["model_arguments"] = model_arguments(config)
    return {
        **settings,
        "row_multiple": row_multiple or config.row_multiple,
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
    }


def changeable(config: TranslationConfig, finish: bool = False) -> tuple[str, ...]:
    """Return the settings that may change between two starts; the budget always may if the run ends now."""
    return (*config.changeable, *(BUDGET if finish else ()))


def check_start(
    corpus: Corpus, config: TranslationConfig, folder: RunFolder, finish: bool = False
) -> None:
    """Refuse what this start asks of a run's folder, as far as that is known without a backend.

    Raises:
        ValueError: Names the settings that differ, and why they may not.
    """
    config = with_budget(config, folder, finish)
    allowed = (*changeable(config, finish), "row_multiple")
    folder.check(run_settings(corpus, config), allowed, reasons(config))


def with_budget(
    config: TranslationConfig, folder: RunFolder, finish: bool = False
) -> TranslationConfig:
    """Return the settings with the budget of this start.

    Args:
        config: The settings that were asked for.
        folder: The run's folder.
        finish: Whether the run ends as soon as it can. A run whose learning rate has a cool-down begins it
            now: the result is that of a run whose budget was so small from the start. Others end at
            their last checkpoint.

    Raises:
        ValueError: If the run has nothing to finish, or has done more than its new budget allows.
    """
    done = folder.last_checkpoint()
    if not done:
        if finish:
            raise ValueError(
                f"--finish: the run in '{folder.path}' has no checkpoint yet. Train first, or give its "
                "folder."
            )
        return config
    state = done["callbacks"].get("Budget", {})
    if finish:
        return _finished(config, folder, done["updates"], state.get("cooldown"))
    there = folder.settings()
    if config.cooldown is not None and any(there.get(n) != getattr(config, n) for n in BUDGET):
        _check_rest(
            config, folder, {"updates": done["updates"], **state, **(state["cooldown"] or {})}
        )
    return config


def _finished(
    config: TranslationConfig, folder: RunFolder, updates: int, cools: Mapping[str, Any] | None
) -> TranslationConfig:
    """Return the settings with the budget that ends a run as soon as it can be."""
    report = folder.finished_report() or {}
    if report.get("training", {}).get("updates") == updates:
        budget = {name: report["config"].get(name) for name in BUDGET}
    elif cools is None:
        # A cool-down would need updates after those at which kappa and alpha were to be frozen.
        share = 0.0 if config.is_weighted else config.cooldown or 0.0
        steps = finishing_steps(max(1, updates), share)
        budget = {"steps": steps, "minutes": None}
    elif cools["steps"] is None:
        budget = dict(zip(BUDGET, cools["limits"], strict=True))
    else:
        budget = {"steps": cools["steps"], "minutes": None, "patience": cools["limits"][0]}
    return dataclasses.replace(config, **budget)


def _check_rest(config: TranslationConfig, folder: RunFolder, spent: Mapping[str, Any]) -> None:
    """Refuse a budget that leaves nothing in which the learning rate can fall."""
    minutes = spent["seconds"] / 60
    for name, is_over, done in (
        (
            "steps",
            config.steps is not None and config.steps <= spent["updates"],
            f"{spent['updates']:,} updates",
        ),
        (
            "minutes",
            config.minutes is not None and config.minutes <= minutes,
            f"{minutes:.1f} minutes",
        ),
    ):
        if is_over:
            raise ValueError(
                f"The run in '{folder.path}' has trained {done} at its full learning rate, so --{name} "
                f"{getattr(config, name):,} leaves nothing in which the rate can fall. Nothing was changed. "
                "Give a larger budget, or end the run now with --finish."
            )
