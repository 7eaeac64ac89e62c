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

from keras_attention.cli.options import Parser, add_options, adding, as_toml, flag, read_toml
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import naming_the_folder, orderly_exit
from keras_attention.cli.train_settings import (
    DECIDED,
    LITTLE_TEXT,
    MODEL_OPTIONS,
    check_settings,
    check_start_from,
    configured,
    kept_text,
    little_text,
    named_recipe,
    part_of,
    settings,
    shown_defaults,
    sized_recipe,
)
from keras_attention.data.mixture import parse_mixture
from keras_attention.data.text_files import existing_file, is_pipe, read_lines
from keras_attention.recipes.catalog import RECIPES
from keras_attention.recipes.config import TranslationConfig, model_rules
from keras_attention.recipes.text import OWN_FILES, PAIRS, PATHS, TextOptions
from keras_attention.spec.options import TransformerOptions
from keras_attention.utils.backend import check_backend
from keras_attention.utils.files import atomic_file, check_destination
from keras_attention.utils.lazily import check_event_files, check_moses
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import RunFolder

if TYPE_CHECKING:
    from keras_attention.data.corpora import Corpus

# The settings of `TranslationConfig` by the groups of the help.
GROUPS = {
    "budget: whichever ends first": ("steps", "minutes", "patience"),
    "model and vocabulary": (
        *("preset", "vocabulary_size", "tokenizer_algorithm", "symbols", "source_prefix"),
        *("bpe_dropout", "bpe_samples"),
    ),
    "a pretrained model, trained further": ("start_from", "freeze", "lora", "start_share"),
    "training": (
        *("mixture", "batch_tokens", "max_length", "max_shapes", "warmup_steps"),
        *("peak_learning_rate", "cooldown", "learning_rate_factor", "label_smoothing"),
        *("guided_alignment", "guided_alignment_weight", "guided_alignment_head"),
        *("checkpoint_minutes", "checkpoint_updates", "averaged_checkpoints", "ema"),
        *("best_by", "final_model", "bleu_every", "attention_log", "seed"),
    ),
    "search": ("beam_size", "length_penalty"),
    "devices": (
        *("dtype", "strategy", "replicas", "accumulation_steps", "recompute", "jit_compile"),
        "row_multiple",
    ),
}
# What --plan and --dump-config make no use of.
NOT_PLANNED = ("output_dir", "translate", "open")
ALIASES = {
    "start_from": ["--from"],
    "tokenizer_algorithm": ["--tokenizer"],
    "averaged_checkpoints": ["--average"],
    "mixture": ["--mix"],
}
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
    named = _early_corpus(given, None if default_corpus == "demo" else default_corpus)
    shown = shown_defaults(recipes.get(named or OWN_FILES), recipes.values())
    languages = {"source_language": "en", "target_language": default_target_language}
    text = {"corpus": default_corpus, **languages}
    parser = _parser(description, program, shown, text)
    with orderly_exit(parser.prog):
        options = vars(parser.parse_args(given))
        if "config" in options:
            options = {**read_toml(options.pop("config"), settings(), model_rules()), **options}
        if not {"tsv", "source_file", "parts"} & {*options}:
            options.setdefault("target_language", default_target_language)
        return _run(options, default_corpus, recipes, options.pop("plan", plan))
    raise AssertionError("`orderly_exit` ends the process after an error.")


def _run(
    options: dict[str, Any],
    default_corpus: str,
    recipes: Mapping[str, TranslationConfig],
    plan: bool,
) -> dict[str, Any]:
    for name in ("corpus", *PATHS, *PAIRS):
        if name in options and options[name] is None:
            raise ValueError(
                f"{flag(name)} none: leave it out, or write ./none for a file of this name."
            )
    text = TextOptions(**part_of(options, TextOptions))
    plan = plan or "plan_json" in options
    _check_outputs(options, text, plan)
    if plan or "dump_config" in options:
        more = ("prepare_only", "plan_json") if "dump_config" in options else ()
        unused = [flag(name) for name in (*NOT_PLANNED, *more) if name in options]
        if unused:
            say(f"Nothing is trained: {' and '.join(unused)} will not be used.")
    name = OWN_FILES if text.is_own else text.corpus or default_corpus
    recipe = named_recipe(name, options, recipes)
    if options.get("start_from") is not None:
        check_start_from(options)
        recipe = None
    elif text.old_domain_files is not None:
        raise ValueError("--old-domain-files needs --from: a new model has no old domain.")
    if options.get("guided_alignment") is not None:
        from keras_attention.data.alignments import GOLD

        if options["guided_alignment"] != GOLD:
            options["guided_alignment"] = str(existing_file(options["guided_alignment"]))
    check_settings(recipe, options)
    if not options.pop("dump_config", False):
        return _train(options, text, name, recipe, plan)
    if recipe is None:
        recipe = sized_recipe(len(text.load(default_corpus).train), options)
    config = configured(recipe, options)
    found = dataclasses.asdict(config)
    unsaid = () if config.start_from is None else DECIDED
    written = {name: value for name, value in found.items() if name not in unsaid}
    print(as_toml({**part_of(options, TextOptions), **written}), end="")
    return found


def _train(
    options: dict[str, Any],
    text: TextOptions,
    name: str,
    recipe: TranslationConfig | None,
    plan: bool,
) -> dict[str, Any]:
    with activity("reading the text"):
        corpus = text.load(name)
    recipe = recipe or sized_recipe(len(corpus.train), options)
    config = configured(recipe, options)
    parse_mixture(config.mixture, corpus.parts)  # Refuses names of other parts before Keras starts.
    finish = options.get("finish", False)
    if config.preset != recipe.preset:
        say(kept_text(recipe, config))
    if name == OWN_FILES and config.start_from is None and len(corpus.train) < LITTLE_TEXT:
        say(little_text(corpus))
    if not plan:
        check_backend()  # TensorFlow brings TensorBoard.
        check_event_files()
        check_moses()
    start_backend()
    if plan:
        return _plan(corpus, config, options)
    from keras_attention.recipes.order import train_translation
    from keras_attention.utils.memory import tune_memory

    tune_memory()
    kind = config.preset if config.start_from is None else "fine-tuned"
    fresh = Path("runs", f"{corpus.name}-{kind}-{time.strftime('%Y%m%d-%H%M%S')}")
    folder = RunFolder(options.get("output_dir") or fresh)
    if "prepare_only" in options:
        from keras_attention.recipes.run import Run

        Run(corpus, config, folder.path).prepare()
        print(folder.store)
        return {}
    with naming_the_folder(folder.path, "output_dir" in options):
        report = train_translation(corpus, config, folder.path, finish)
    if "translate" in options and report:  # Of several processes one has it.
        from keras_attention.decoding.translator import Translator

        source, target = options["translate"]
        Translator.from_run(folder.path).translate_file(source, target)
        say(f"Translated {source} into {target}")
    if "open" in options and report and folder.attention.is_file():
        import webbrowser

        webbrowser.open(folder.attention.resolve().as_uri())
    return report


def _early_corpus(arguments: Sequence[str], default: str | None) -> str | None:
    """Return the corpus, before all arguments are read: its recipe's settings are shown in the help."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--corpus", "--source-file", "--tsv"):
        early.add_argument(name)
    early.add_argument("--parts", nargs="+")
    try:
        found, _ = early.parse_known_args(list(arguments))
    except (argparse.ArgumentError, SystemExit):
        return default
    is_own = found.source_file or found.tsv or found.parts
    return OWN_FILES if is_own else found.corpus or default


def _parser(
    description: str | None,
    program: str | None,
    defaults: Mapping[str, Any],
    text: Mapping[str, Any],
) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        usage=f"{program or '%(prog)s'} [options]",
        description=description,
        epilog=EXAMPLE,
        argument_default=argparse.SUPPRESS,
    )

    add_options(parser.add_argument_group("text"), TextOptions, defaults=text)
    for title, names in GROUPS.items():
        group = parser.add_argument_group(f"{title} (defaults in brackets)")
        add_options(group, TranslationConfig, names, defaults, ALIASES)
        if "preset" in names:
            of_preset = dict.fromkeys(MODEL_OPTIONS)
            add_options(group, TransformerOptions, MODEL_OPTIONS, {**of_preset, **defaults})
    _add_run_options(parser.add_argument_group("what to do"))
    return parser


def _add_run_options(group: Any) -> None:
    add = adding(group)
    add("--output-dir PATH", "the run's folder (runs/NAME-TIME)", Path)
    add("--translate IN OUT", "translate a file after training", Path)
    add("--open", "show in a browser where the heads of the trained model look")
    add(
        "--finish",
        "end the stopped run in --output-dir instead of training to the end of its budget: its learning "
        "rate falls in a few more updates, then come translations and report",
    )
    add("--config FILE", "read settings from a TOML file", Path)
    add("--dump-config", "print the settings as TOML and exit")
    add("--prepare-only", "make the tokenizer and the token ids, then exit")
    add("--plan", "print what the run will read and need, then exit")
    add("--plan-json FILE", "also write the plan as JSON; implies --plan", Path)
    add = adding(group.add_mutually_exclusive_group(), dest="plan_try", action="store_const")
    tried = "plan: try an update on the largest batch, however long it takes"
    add("--plan-try", tried, const=True)
    untried = "plan: do not; by default one is tried if it takes seconds"
    add("--plan-no-try", untried, const=False)


def _check_outputs(options: dict[str, Any], text: TextOptions, plan: bool) -> None:
    """Refuse what cannot be written, before hours of training and not after."""
    if "output_dir" in options and not plan:
        RunFolder(options["output_dir"]).check_own()
    if "plan_try" in options and not plan:
        raise ValueError("--plan-try and --plan-no-try need --plan.")
    if "finish" in options:
        if "output_dir" not in options or plan or "prepare_only" in options:
            raise ValueError(
                "--finish needs --output-dir, the folder of a run that was stopped, and cannot be combined "
                "with --plan or --prepare-only."
            )
        if {"steps", "minutes"} & {*options}:
            raise ValueError(
                "Give --finish or a budget, not both: a smaller --steps or --minutes alone also ends a run "
                "early, where you say."
            )
    if "prepare_only" in options and (
        "output_dir" not in options or plan or "translate" in options
    ):
        raise ValueError(
            "--prepare-only needs --output-dir, and cannot be combined with --plan or --translate."
        )
    if "plan_json" in options:
        check_destination(options["plan_json"], sources=text.files)
    if "translate" in options:
        source, target = options["translate"]
        if not source.is_file() and not is_pipe(source):
            raise FileNotFoundError(f"--translate: there is no file '{source}'.")
        source = existing_file(source)
        options["translate"] = source, target
        check_destination(target, sources=[source, *text.files])
        folder = options.get("output_dir")
        if folder is not None and Path(folder).resolve() in target.resolve().parents:
            raise ValueError(
                f"--translate: '{target}' is inside the run's folder. Choose another file."
            )
        for _ in read_lines(source):  # Raises if it is no text.
            pass


def _plan(corpus: Corpus, config: TranslationConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    from keras_attention.recipes.plan import plan_training

    plan = plan_training(corpus, config, try_longest=options.get("plan_try"))
    print(plan)
    figures = plan.as_dict()
    if "plan_json" in options:
        with atomic_file(options["plan_json"], "w", is_new=True) as file:
            file.write(json.dumps(figures, indent=2) + "\n")
    return figures
