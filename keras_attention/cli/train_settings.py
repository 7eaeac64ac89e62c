"""What a training's settings are: a recipe's, in their place the command line's, and what is said of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_attention.cli.options import NONE, flag
from keras_attention.recipes.catalog import BY_SIZE, fine_tuning_recipe, recipe_for
from keras_attention.recipes.config import TranslationConfig, model_rules
from keras_attention.recipes.text import OWN_FILES, TextOptions
from keras_attention.spec.options import DROPOUTS
from keras_attention.spec.presets import SIZES, preset_arguments
from keras_attention.utils.arguments import check, rules
from keras_attention.utils.checks import did_you_mean

if TYPE_CHECKING:
    from keras_attention.data.corpora import Corpus

# Those arguments of the model that are options themselves; a file has them all, as `model_arguments`.
MODEL_OPTIONS = (
    *("num_layers", "hidden_dim", "intermediate_dim", "num_heads", "dropout", "attention_dropout"),
    *("normalize_first", "decoder_cell", "position_layout"),
    *("normalization", "gated_feed_forward"),
)
DECIDED = ("preset", "vocabulary_size", "tokenizer_algorithm")  # by a pretrained model
LITTLE_TEXT = 100_000  # pairs, for a new model
DEPENDS = "depends on your text"  # its size, or its recipe


def settings() -> dict[str, Any]:
    """Return the annotations of all that a file of settings may hold."""
    model = {name: model_rules()[name] for name in MODEL_OPTIONS}
    return {**rules(TextOptions), **rules(TranslationConfig), **model}


def part_of(options: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """Return the options that are fields of a dataclass."""
    return {name: value for name, value in options.items() if name in rules(cls)}


def shown_defaults(
    recipe: TranslationConfig | None, recipes: Iterable[TranslationConfig]
) -> dict[str, Any]:
    """Return what the help names as defaults: those of this recipe, or what holds for all texts."""
    if recipe is not None:
        return {**dataclasses.asdict(recipe), **recipe.model_arguments}
    rows = [dataclasses.asdict(one) for one in (*recipes, *(config for _, config in BY_SIZE))]
    shown = {
        name: value if all(row[name] == value for row in rows) else DEPENDS
        for name, value in rows[0].items()
    }
    set_by_some = {name for row in rows for name in row["model_arguments"]}
    tuned = fine_tuning_recipe(0, "MODEL")
    for name in ("start_share", "label_smoothing", "best_by", "final_model"):
        usual = NONE if shown[name] is None else shown[name]
        shown[name] = f"{usual}; with --from {getattr(tuned, name)}"
    return {**shown, **dict.fromkeys(set_by_some, DEPENDS)}


def named_recipe(
    name: str, options: Mapping[str, Any], recipes: Mapping[str, TranslationConfig]
) -> TranslationConfig | None:
    """Return the settings of a corpus; of the direction and of the size of model, where it has such."""
    names = [name]
    if "fr" in (options.get("source_language"), options.get("target_language")):
        names.append(f"{name}_en_fr")
    if (options.get("preset") or "").startswith("big"):
        names += [f"{known}_big" for known in names]
    found = [known for known in names if known in recipes]
    if not found and name != OWN_FILES:
        hint = did_you_mean(name, recipes)
        raise ValueError(
            f"--corpus: invalid choice: '{name}'.{hint} `--help` says which there are; text of your own "
            "goes with --source-file and --target-file."
        )
    return recipes[found[-1]] if found else None


def sized_recipe(pairs: int, options: Mapping[str, Any]) -> TranslationConfig:
    """Return the settings for a text with this many pairs, of a new model or of a pretrained one."""
    start = options.get("start_from")
    return recipe_for(pairs) if start is None else fine_tuning_recipe(pairs, start)


def check_settings(recipe: TranslationConfig | None, options: Mapping[str, Any]) -> None:
    """Refuse wrong settings before anything is read, and before the backend starts."""
    if "preset" in options:
        preset_arguments(options["preset"])
    configured(recipe or sized_recipe(0, options), options)


def model_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given arguments of the model."""
    known = model_rules()
    given = {name: options[name] for name in MODEL_OPTIONS if name in options}
    return {name: check(name, value, known[name]) for name, value in given.items()}


def configured(recipe: TranslationConfig, options: Mapping[str, Any]) -> TranslationConfig:
    """Return the recipe with what was asked for on the command line."""
    asked = part_of(options, TranslationConfig)
    if asked.get("tokenizer_algorithm", "bpe") != "bpe":
        asked = {"bpe_dropout": 0.0, **asked}
    # One of these in the recipe gives way to the other on the command line.
    if "checkpoint_minutes" in asked:
        asked = {"checkpoint_updates": None, **asked}
    elif "checkpoint_updates" in asked:
        asked["checkpoint_minutes"] = None
    if asked.get("peak_learning_rate", 1) is None:
        asked = {"cooldown": None, **asked}  # The paper's learning rate has none.
    if asked.get("best_by", 1) is None:
        asked = {"final_model": "average", **asked}
    if asked.get("preset", recipe.preset) != recipe.preset:
        kept = {k: v for k, v in recipe.model_arguments.items() if k not in SIZES}
        asked = {"model_arguments": kept, **asked}
    model = model_options(options)
    if model:
        own = asked.get("model_arguments", recipe.model_arguments)
        asked["model_arguments"] = {**own, **model}
    if "steps" in asked or "minutes" in asked:
        asked = {"steps": None, "minutes": None, **asked}
    return dataclasses.replace(recipe, **asked)


def check_start_from(options: Mapping[str, Any]) -> None:
    """Refuse what the pretrained model decides, and read it, before anything else is done."""
    from keras_attention.recipes.start import start_of

    decided = [name for name in DECIDED if name in options]
    decided += [name for name in model_options(options) if name not in DROPOUTS]
    if decided:
        raise ValueError(
            f"{flag(decided[0])} cannot be combined with --from: the pretrained model has its "
            "own. Leave it out, or train a new model without --from."
        )
    start_of(options["start_from"])


def little_text(corpus: Corpus) -> str:
    """Return what gets further than a new model with little text.

    >>> from keras_attention.data import load_corpus
    >>> little_text(load_corpus("demo")).partition(". ")[2]
    'For these languages try hf://Helsinki-NLP/opus-mt-en-de, if there is such a model.'
    """
    languages = corpus.source_language, corpus.target_language
    known = all(len(language) == 2 for language in languages)
    handle = f"hf://Helsinki-NLP/opus-mt-{languages[0]}-{languages[1]}"
    such = f" For these languages try {handle}, if there is such a model." if known else ""
    return (
        f"{len(corpus.train):,} pairs are little text for a new model: a pretrained one, --from MODEL, gets "
        f"further in minutes than a new one in hours.{such}"
    )


def kept_text(recipe: TranslationConfig, config: TranslationConfig) -> str:
    """Return what another preset leaves as it is."""
    rate = config.peak_learning_rate
    model = {k: v for k, v in config.model_arguments.items() if k not in SIZES}
    kept = {**model, **({} if rate is None else {"peak_learning_rate": rate})}
    names = ", ".join(f"{name} {value}" for name, value in kept.items())
    return (
        f"--preset {config.preset} changes the size of the model alone. All else is what the recipe has with "
        f"{recipe.preset}{f', such as {names}' if names else ''}."
    )
