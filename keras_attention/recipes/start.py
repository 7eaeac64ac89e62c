"""What a run begins from: a pretrained model, the settings that identify it, the budget of this start."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from keras_attention.data.alignments import WordAlignments
from keras_attention.data.corpus import Corpus
from keras_attention.data.mixture import parse_mixture
from keras_attention.data.presets import Loaded, load
from keras_attention.recipes.config import BUDGET, TranslationConfig
from keras_attention.spec.options import DROPOUTS
from keras_attention.spec.presets import preset_arguments
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.checks import depths_of
from keras_attention.utils.cooldown import finishing_steps
from keras_attention.utils.languages import base_language
from keras_attention.utils.run_folder import RunFolder
from keras_attention.utils.sides import LANGUAGES

FOLLOWS_BUDGET = (
    "the learning rate of that run falls from its peak to the end of its budget, which therefore cannot "
    "change. End the run now with --finish, or start another one with --cooldown 0.2, whose budget can change"
)


@functools.lru_cache(maxsize=2)
def start_of(preset: str) -> Loaded:
    """Return the pretrained model that a run starts from; read once in a process."""
    found = load(preset)
    if not isinstance(found.spec, TransformerSpec):
        found.spec.options()  # Files of ONNX, which say that they cannot be trained.
    return found


def tokenizer_between(tokenizer: Any, corpus: Corpus) -> Any:
    """Return a copy of a pretrained model's tokenizer; of one for many languages, for those of a corpus.

    Where the corpus has a name that the model does not know, the languages that the preset has are kept. The
    tag of a language takes the place of another one, but not before texts that have their own.

    Raises:
        ValueError: If it has none, either.
    """
    if not getattr(tokenizer, "languages", None):
        return _tagged_between(copy.copy(tokenizer), corpus)
    named = {name: getattr(corpus, name) for name in LANGUAGES}
    chosen = [
        None if getattr(tokenizer, name) and code not in tokenizer.languages else code
        for name, code in named.items()
    ]
    return tokenizer.in_languages(*chosen)


def _tagged_between(tokenizer: Any, corpus: Corpus) -> Any:
    """Return a tokenizer whose prefix, if it names a language by a tag, names that of a corpus."""
    tags: Mapping[str, str] = getattr(tokenizer, "tags", {})
    known = {base_language(code): code for code in tags}
    target = corpus.target_language
    code = target if target in tags else known.get(base_language(target))
    if tokenizer.source_prefix not in (None, *tags.values()):
        return tokenizer
    if corpus.symbols:  # in its text
        tokenizer.source_prefix = None
    elif code is not None:
        return tokenizer.in_languages(target=code)
    return tokenizer


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


def settings_of(
    corpus: Corpus, config: TranslationConfig, row_multiple: int, alignments: WordAlignments | None
) -> dict[str, Any]:
    """Return the settings that identify a run, as `config.json` has them."""
    settings = dataclasses.asdict(config)
    parse_mixture(config.mixture, corpus.parts)  # Refuses other names.
    if config.mixture:
        settings["parts"] = {name: text.fingerprint() for name, text in corpus.parts.items()}
    head = guided_head(config)
    if head is not None and alignments is not None:
        settings["guided_alignment_head"] = [*head]
        settings["guided_alignment_sha256"] = alignments.fingerprint
    if config.start_from is not None:
        settings["start_fingerprint"] = start_of(config.start_from).fingerprint()
        settings["model_arguments"] = model_arguments(config)
    return {
        **settings,
        "row_multiple": row_multiple,
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
    }


def with_budget(config: TranslationConfig, folder: RunFolder, finish: bool) -> TranslationConfig:
    """Return the settings with the budget of this start; refuse one that leaves nothing to do.

    With `finish`, a run ends as soon as it can. One whose learning rate has a cool-down begins it now: the
    result is that of a run whose budget was so small from the start. Others end at their last checkpoint.
    """
    done = folder.last_checkpoint()
    if not done:
        if finish:
            raise ValueError(
                f"--finish: the run in '{folder.path}' has no checkpoint yet. Train first, or give "
                "its folder."
            )
        return config
    state = done["callbacks"]["Budget"]
    if finish:
        budget = _least_budget(config, folder, done["updates"], state["cooldown"])
        return dataclasses.replace(config, **budget)
    if config.cooldown is not None:
        there = folder.settings()
        if any(there.get(name) != getattr(config, name) for name in BUDGET):
            spent = {"updates": done["updates"], **state, **(state["cooldown"] or {})}
            _check_rest(config, folder, spent)
    return config


def _least_budget(
    config: TranslationConfig, folder: RunFolder, updates: int, cools: Mapping[str, Any] | None
) -> dict[str, Any]:
    report = folder.finished_report() or {}
    if report.get("training", {}).get("updates") == updates:
        return {name: report["config"].get(name) for name in BUDGET}
    if cools is None:
        return {"steps": finishing_steps(max(1, updates), config.cooldown or 0.0), "minutes": None}
    if cools["steps"] is None:
        return dict(zip(BUDGET, cools["limits"], strict=True))
    return {"steps": cools["steps"], "minutes": None, "patience": cools["limits"][0]}


def _check_rest(config: TranslationConfig, folder: RunFolder, spent: Mapping[str, Any]) -> None:
    minutes = spent["seconds"] / 60
    for name, done, spoken in (
        ("steps", spent["updates"], f"{spent['updates']:,} updates"),
        ("minutes", minutes, f"{minutes:.1f} minutes"),
    ):
        limit = getattr(config, name)
        if limit is not None and limit <= done:
            raise ValueError(
                f"The run in '{folder.path}' has trained {spoken} at its full learning rate, so "
                f"--{name} {limit:,} leaves nothing in which the rate can fall. Nothing was changed. "
                "Give a larger budget, or end the run now with --finish."
            )
