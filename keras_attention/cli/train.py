"""`keras-attention train`: from a text to a trained model, its translations and its report."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention.cli.bulk_options import add_bulk_options, refuse_spread, spread
from keras_attention.cli.exits import naming_the_folder, orderly_exit
from keras_attention.cli.options import Parser, add_options, as_toml, read_toml
from keras_attention.cli.quiet import start_backend
from keras_attention.data.parallel_text import read_lines
from keras_attention.recipes.catalog import RECIPES, recipe_for
from keras_attention.recipes.config import ModelOptions, TranslationConfig
from keras_attention.recipes.text import OWN_FILES, TextOptions
from keras_attention.utils.checks import check_number, did_you_mean
from keras_attention.utils.files import check_destination, write_atomically
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import RunFolder

if TYPE_CHECKING:
    from keras_attention.data.corpora import Corpus

MODEL = ("preset", "vocabulary_size", "tokenizer_algorithm", "bpe_dropout", "bpe_samples")
BUDGET = ("steps", "minutes", "patience")
TRAINING = (
    "batch_tokens",
    "max_length",
    "max_shapes",
    "warmup_steps",
    "peak_learning_rate",
    "learning_rate_factor",
    "label_smoothing",
    "checkpoint_minutes",
    "checkpoint_updates",
    "averaged_checkpoints",
    "bleu_every",
    "attention_log",
    "attention_images",
    "seed",
)
SEARCH = ("beam_size", "length_penalty")
DEVICES = ("dtype", "strategy", "replicas", "accumulation_steps", "recompute", "row_multiple")
ALIASES = {"tokenizer_algorithm": ["--tokenizer"], "averaged_checkpoints": ["--average"]}
DESCRIPTION = """Train a Transformer to translate, and score it.

Without arguments, it trains a small model on the built-in demo corpus (synthetic), a few minutes on a CPU.
Settings that you do not give come from the recipe of the corpus or, for your own text, depend on its size.
If a run was stopped or killed, the same command continues it, with the run's folder as --output-dir.
"""
EXAMPLE = """
example with your own text; line i of train.de is the translation of line i of train.en:
  keras-attention train --source-file train.en --target-file train.de --output-dir runs/mine
"""


def main(arguments: Sequence[str], program: str = "keras-attention train") -> None:
    """Train as the arguments say."""
    run(DESCRIPTION, arguments=arguments, program=program)


def run(
    description: str | None,
    default_corpus: str = "demo",
    arguments: Sequence[str] | None = None,
    recipes: Mapping[str, TranslationConfig] = RECIPES,
    default_target_language: str = "de",
    program: str | None = None,
    plan: bool = False,
) -> dict[str, Any]:
    """Parse the arguments, train, report, and translate a file if asked to; or plan alone.

    Args:
        description: What `--help` says first.
        default_corpus: Corpus without `--corpus`.
        arguments: Arguments instead of `sys.argv`.
        recipes: Settings for each corpus name; "files" for the user's own files. Without that entry, the
            size of the files decides.
        default_target_language: Target without `--target-language`.
        program: Name of the command; that of the script if not given.
        plan: Whether to plan, as `--plan` does.

    Returns:
        The run's report, or the figures of the plan.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    defaults = recipes.get(_early_corpus(given, default_corpus))
    text = {"corpus": default_corpus, "target_language": default_target_language}
    parser = _parser(description, program, defaults, text)
    options = vars(parser.parse_args(given))
    with orderly_exit(parser.prog):
        if "config" in options:
            options = {**read_toml(options.pop("config"), _setting_names()), **options}
        options.setdefault("target_language", default_target_language)
        return _run(options, default_corpus, recipes, options.pop("plan", plan))
    raise AssertionError("`orderly_exit` ends the process after an error.")


def _run(
    options: dict[str, Any],
    default_corpus: str,
    recipes: Mapping[str, TranslationConfig],
    plan: bool,
) -> dict[str, Any]:
    text = TextOptions(**_part(options, TextOptions))
    plan = plan or "plan_json" in options
    _check_outputs(options, text, plan)
    name = OWN_FILES if text.is_own else text.corpus or default_corpus
    recipe = _recipe(name, options, recipes)
    if recipe is not None:
        configured(recipe, options)  # Refuses wrong settings before anything is read.
    if not options.pop("dump_config", False):
        start_backend()
        return _train(options, text, name, recipe, plan)
    if recipe is None:
        recipe = recipe_for(len(text.load(default_corpus).train))
    config = configured(recipe, options)
    print(as_toml({**_part(options, TextOptions), **dataclasses.asdict(config)}), end="")
    return dataclasses.asdict(config)


def _train(
    options: dict[str, Any],
    text: TextOptions,
    name: str,
    recipe: TranslationConfig | None,
    plan: bool,
) -> dict[str, Any]:
    with activity("reading the text"):
        corpus = text.load(name)
    config = configured(recipe or recipe_for(len(corpus.train)), options)
    if plan:
        return _plan(corpus, config, options)
    from keras_attention.recipes.run import train_translation
    from keras_attention.utils.memory import tune_memory

    tune_memory()
    folder = RunFolder(options.get("output_dir") or _fresh_folder(corpus.name, config.preset))
    if "prepare_only" in options:
        from keras_attention.recipes.bulk_store import prepare_corpus

        store = prepare_corpus(corpus, config, folder.path, **spread(argparse.Namespace(**options)))
        return {} if store is None else {"store": str(store)}
    with naming_the_folder(folder.path, "output_dir" in options):
        report = train_translation(corpus, config, folder.path)
    if "translate" in options and report:  # Of several processes one has it.
        _translate_file(folder, *options["translate"])
    return report


def _early_corpus(arguments: Sequence[str], default: str) -> str:
    """The corpus, before all arguments are read: its recipe's settings are shown in the help."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--corpus", "--source-file", "--tsv"):
        early.add_argument(name)
    try:
        found, _ = early.parse_known_args(list(arguments))
    except (argparse.ArgumentError, SystemExit):
        return default
    return OWN_FILES if found.source_file or found.tsv else found.corpus or default


def _parser(
    description: str | None,
    program: str | None,
    recipe: TranslationConfig | None,
    text: Mapping[str, Any],
) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        usage=f"{program or '%(prog)s'} [options]",
        description=description,
        epilog=EXAMPLE,
    )
    known: dict[str, Any] = {}
    where = "if not given, chosen by the size of the text"
    if recipe is not None:
        known, where = dataclasses.asdict(recipe), "defaults in brackets"
    unknown = dict.fromkeys({field.name for field in dataclasses.fields(TranslationConfig)})
    defaults = {**unknown, **known}

    def settings(title: str, names: Sequence[str]) -> Any:
        group = parser.add_argument_group(f"{title} ({where})")
        add_options(group, TranslationConfig, names, defaults, ALIASES)
        return group

    add_options(parser.add_argument_group("text"), TextOptions, defaults=text)
    settings("budget: whichever ends first", BUDGET)
    model = settings("model and vocabulary", MODEL)
    add_options(model, ModelOptions, defaults=known.get("model_arguments"))
    settings("training", TRAINING)
    settings("search", SEARCH)
    devices = settings("devices", DEVICES)
    devices.add_argument(
        "--mixed-precision",
        dest="dtype",
        action="store_const",
        const="mixed_bfloat16",
        default=argparse.SUPPRESS,
        help="the same as --dtype mixed_bfloat16",
    )
    _add_run_options(parser.add_argument_group("what to do"))
    return parser


def _add_run_options(group: Any) -> None:
    def add(name: str, **more: Any) -> None:
        group.add_argument(name, default=argparse.SUPPRESS, **more)

    add("--output-dir", type=Path, metavar="PATH", help="the run's folder (runs/NAME-TIME)")
    add(
        "--translate",
        nargs=2,
        type=Path,
        metavar=("IN", "OUT"),
        help="translate a file after training",
    )
    add("--config", type=Path, metavar="FILE", help="read settings from a TOML file")
    add("--dump-config", action="store_true", help="print the settings as TOML and exit")
    add(
        "--prepare-only",
        action="store_true",
        help="make the tokenizer and the token ids, then exit",
    )
    add_bulk_options(add, output=False)
    add("--plan", action="store_true", help="print what the run will read and cost, then exit")
    for name, kind, letter, text in PLAN_DEVICES:
        option = f"--{name.replace('_', '-')}"
        add(option, type=kind, metavar=letter, help=f"plan: {text}")
    add(
        "--plan-json", type=Path, metavar="FILE", help="also write the plan as JSON; implies --plan"
    )
    tried = group.add_mutually_exclusive_group()
    for flag, value, text in (
        ("--plan-try", True, "plan: train one step on the largest batch, however long it takes"),
        ("--plan-no-try", False, "plan: do not; by default a step is tried if it takes seconds"),
    ):
        tried.add_argument(
            flag,
            dest="plan_try",
            action="store_const",
            const=value,
            default=argparse.SUPPRESS,
            help=text,
        )


# What `scaling_estimate` is told of the devices: option, its unit, what it is.
PLAN_DEVICES = (
    ("plan_devices", int, "N", "devices that share a batch"),
    (
        "plan_tflops",
        float,
        "X",
        "TFLOP/s that a device reaches in training, about 0.4 of its peak",
    ),
    ("plan_bandwidth", float, "X", "GB/s between two devices"),
    ("plan_price", float, "X", "price of one device per hour"),
)


def _part(options: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """The options that are fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in options.items() if name in names}


def _setting_names() -> set[str]:
    classes: tuple[Any, ...] = (TextOptions, TranslationConfig, ModelOptions)
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


def _check_outputs(options: Mapping[str, Any], text: TextOptions, plan: bool) -> None:
    """Refuse what cannot be written, before hours of training and not after."""
    if "plan_try" in options and not plan:
        raise ValueError("--plan-try and --plan-no-try need --plan.")
    given = [name for name, *_ in PLAN_DEVICES if name in options]
    for name in given:
        check_number(name, options[name], above=0)
    needed = [name for name, *_ in PLAN_DEVICES[:3] if name not in options]
    if given and (needed or not plan):
        names = ", ".join(f"--{name.replace('_', '-')}" for name, *_ in PLAN_DEVICES[:3])
        raise ValueError(f"To plan for several devices, give --plan and all of {names}.")
    if "prepare_only" not in options:
        refuse_spread(argparse.Namespace(**options), "--prepare-only")
    elif "output_dir" not in options or plan or "translate" in options:
        raise ValueError(
            "--prepare-only needs --output-dir, and cannot be combined with --plan or --translate."
        )
    if "plan_json" in options:
        check_destination(options["plan_json"], sources=text.files)
    if "translate" in options:
        source, target = options["translate"]
        if not source.is_file():
            raise FileNotFoundError(f"--translate: there is no file '{source}'.")
        check_destination(target, sources=[source, *text.files])
        folder = options.get("output_dir")
        if folder is not None and Path(folder).resolve() in target.resolve().parents:
            raise ValueError(
                f"--translate: '{target}' is inside the run's folder. Choose another file."
            )
        for _ in read_lines(source):  # Raises if it is no text.
            pass


def _recipe(
    name: str, options: Mapping[str, Any], recipes: Mapping[str, TranslationConfig]
) -> TranslationConfig | None:
    """The settings of a corpus; of the direction and of the size of model, where it has such."""
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


def configured(recipe: TranslationConfig, options: Mapping[str, Any]) -> TranslationConfig:
    """The recipe with what was asked for on the command line."""
    asked = _part(options, TranslationConfig)
    if asked.get("tokenizer_algorithm", "bpe") != "bpe":
        asked = {"bpe_dropout": 0.0, **asked}
    # One of these in the recipe gives way to the other on the command line.
    if "checkpoint_minutes" in asked:
        asked = {"checkpoint_updates": None, **asked}
    elif "checkpoint_updates" in asked:
        asked["checkpoint_minutes"] = None
    if asked.get("preset", recipe.preset) != recipe.preset:
        # What was chosen for the recipe's own model.
        asked = {"model_arguments": {}, **asked}
        if recipe.peak_learning_rate is not None:
            own = None if "minutes" in asked else recipe.steps
            steps = asked.get("steps", own) or sys.maxsize
            warmup_steps = min(TranslationConfig.warmup_steps, max(1, steps // 10))
            asked = {"peak_learning_rate": None, "warmup_steps": warmup_steps, **asked}
    model = ModelOptions(**_part(options, ModelOptions)).given()
    if model:
        own = asked.get("model_arguments", recipe.model_arguments)
        asked["model_arguments"] = {**own, **model}
    if "steps" in asked or "minutes" in asked:
        asked = {"steps": None, "minutes": None, **asked}
    return dataclasses.replace(recipe, **asked)


def _plan(corpus: Corpus, config: TranslationConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    from keras_attention.recipes.plan import plan_training

    plan = plan_training(corpus, config, try_longest=options.get("plan_try"))
    print(plan)
    figures = plan.as_dict()
    if "plan_devices" in options:
        from keras_attention.evaluation.scaling import scaling_estimate

        estimate = scaling_estimate(
            plan.flops / plan.batches,
            plan.parameters,
            options["plan_devices"],
            options["plan_tflops"] * 1e12,
            options["plan_bandwidth"] * 1e9,
            plan.steps,
            options.get("plan_price"),
        )
        print(f"On {estimate}")
        figures["scaling"] = dataclasses.asdict(estimate)
    if "plan_json" in options:
        write_atomically(options["plan_json"], json.dumps(figures, indent=2) + "\n")
    return figures


def _fresh_folder(name: str, preset: str) -> Path:
    return Path("runs") / f"{name}-{preset}-{time.strftime('%Y%m%d-%H%M%S')}"


def _translate_file(folder: RunFolder, source: Path, target: Path) -> None:
    from keras_attention.decoding.translator import Translator

    Translator.from_run(folder.path).translate_file(source, target)
    say(f"Translated {source} into {target}")
