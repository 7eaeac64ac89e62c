"""The command line that the examples share."""

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_attention.callbacks.nonfinite import NonFiniteTraining
from keras_attention.data.corpora import (
    LOADERS,
    Corpus,
    corpus_from_files,
    corpus_from_tsv,
    load_corpus,
)
from keras_attention.data.filters import Filters
from keras_attention.data.tokenizer import TRAINABLE
from keras_attention.models.presets import PRESETS
from keras_attention.recipes.catalog import RECIPES
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.plan import plan_training
from keras_attention.recipes.run import train_translation
from keras_attention.training.distribution import STRATEGIES
from keras_attention.utils.files import write_atomically
from keras_attention.utils.memory import tune_memory
from keras_attention.utils.run_folder import RunFolder

# Option -> field of the configuration.
SETTINGS = {
    "preset": "preset",
    "vocabulary_size": "vocabulary_size",
    "tokenizer": "tokenizer_algorithm",
    "bpe_dropout": "bpe_dropout",
    "batch_tokens": "batch_tokens",
    "warmup_steps": "warmup_steps",
    "peak_learning_rate": "peak_learning_rate",
    "label_smoothing": "label_smoothing",
    "checkpoint_minutes": "checkpoint_minutes",
    "checkpoint_updates": "checkpoint_updates",
    "average": "averaged_checkpoints",
    "strategy": "strategy",
    "replicas": "replicas",
    "accumulation_steps": "accumulation_steps",
    "recompute": "recompute",
    "seed": "seed",
}


def run(
    description: str | None,
    default_corpus: str = "demo",
    arguments: list[str] | None = None,
    recipes: Mapping[str, TranslationConfig] = RECIPES,
    default_target_language: str = "de",
) -> dict[str, Any]:
    """Parse the arguments, train, report, and translate a file if asked to; or plan alone.

    Args:
        description: What `--help` says first.
        default_corpus: Corpus without `--corpus`.
        arguments: Arguments instead of `sys.argv`.
        recipes: Settings for each corpus name; "files" serves for the user's own files.
        default_target_language: Target without `--target-language`.

    Returns:
        The run's report, or the figures of the plan.
    """
    parser = _parser(description, sorted(recipes), default_corpus, default_target_language)
    options = parser.parse_args(arguments)
    try:
        own_files = _check_files(options)
        name = "files" if own_files else options.corpus
        config = _configured(_recipe(name, options, recipes), options)
        filters = _filters(options)
        corpus = _corpus(name, options, filters)
        if options.plan or options.plan_json is not None:
            return _plan(corpus, config, options)
        output_dir = options.output_dir or _fresh_folder(name, config.preset)
        _tune_memory()
        report = train_translation(corpus, config, output_dir)
        if options.translate is not None:
            _translate_file(output_dir, config, *options.translate)
    except (ValueError, OSError, MemoryError, ImportError, NonFiniteTraining) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt as stop:
        # 143 after SIGTERM; a Ctrl-C outside of training says no code.
        parser.exit(getattr(stop, "exit_code", 130))
    return report


def _tune_memory() -> None:
    """Tune this process' memory, and say so."""
    done = tune_memory()
    if done:
        print(f"Memory of this process: {'; '.join(done)}.", flush=True)


def _parser(
    description: str | None, recipes: list[str], default: str, target_language: str
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        epilog="What is not given is taken from the recipe of the corpus.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    corpora = [name for name in recipes if name in LOADERS]
    _add_data_options(parser.add_argument_group("text"), corpora, default, target_language)
    _add_training_options(parser.add_argument_group("training"))
    _add_device_options(parser.add_argument_group("devices"))
    _add_run_options(parser.add_argument_group("what to do"))
    return parser


def _add_data_options(
    group: argparse._ArgumentGroup, corpora: list[str], default: str, target_language: str
) -> None:
    add = group.add_argument
    add(
        "--corpus", default=default, choices=corpora, help=f"corpus by name, {default} if not given"
    )
    add("--data-dir", type=Path, help="folder with the corpus' files; downloaded if not given")
    add("--source-language", default="en", help="language code, en if not given")
    add(
        "--target-language",
        default=target_language,
        help=f"language code, {target_language} if not given",
    )
    add("--source-file", type=Path, help="your own text, one sentence a line, plain or gzip")
    add("--target-file", type=Path, help="its translation, line by line")
    add("--tsv", type=Path, help="your own pairs: source, tab, target")
    add("--max-words", type=int, help="leave out training pairs with more words on a side")
    add("--max-ratio", type=float, help="and those with so many times more words on one side")
    add("--drop-duplicates", action="store_true", help="and all but the first of equal pairs")
    add("--vocabulary-size", type=int, help="word-pieces of the shared vocabulary")
    add("--tokenizer", choices=TRAINABLE, help="how words are cut: byte-pair encoding, word-pieces")
    add("--bpe-dropout", type=float, help="probability of skipped merges in the training text")


def _add_training_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--preset", metavar="NAME", choices=list(PRESETS), help=f"size: {', '.join(PRESETS)}")
    add("--steps", type=int, help="most updates")
    add("--minutes", type=float, help="most minutes of training")
    add("--batch-tokens", type=int, help="positions of a batch on either side")
    add("--warmup-steps", type=int, help="updates until the peak of the learning rate")
    add("--peak-learning-rate", type=float, help="then half a cosine to 0 at the end")
    add("--label-smoothing", type=float, help="the paper's epsilon_ls, 0.1")
    add("--checkpoint-minutes", type=float, help="minutes between two checkpoints")
    add("--checkpoint-updates", type=int, help="updates between them, in place of minutes")
    add("--average", type=int, help="how many of the last checkpoints are averaged")
    add("--seed", type=int, help="decides weights, dropout and order")


def _add_device_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--mixed-precision", action="store_true", help="bfloat16 products, float32 weights")
    add(
        "--strategy",
        choices=["none", *STRATEGIES],
        help="mirrored: TensorFlow's GPUs; data_parallel: JAX' devices",
    )
    add("--replicas", type=int, help="number of devices, all if not given")
    add("--accumulation-steps", type=int, help="parts of a batch computed one after the other")
    add(
        "--recompute",
        action="store_true",
        default=None,
        help="compute blocks again in the backward pass: less memory, a third more work",
    )


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--output-dir", type=Path, help="the run's folder; the same command goes on with a run")
    add("--translate", nargs=2, metavar=("IN", "OUT"), help="then translate the file IN into OUT")
    add("--plan", action="store_true", help="print what the run will read and cost, and leave")
    add("--plan-json", type=Path, metavar="FILE", help="write these figures too; implies --plan")
    tried = group.add_mutually_exclusive_group()
    tried.add_argument(
        "--plan-try",
        action="store_true",
        default=None,
        help="plan: train a step on the largest batch, however long it takes",
    )
    tried.add_argument(
        "--plan-no-try",
        dest="plan_try",
        action="store_false",
        help="plan: do not; by default it is done where it takes seconds",
    )


def _check_files(options: argparse.Namespace) -> bool:
    """Whether the text is the user's own; says what does not fit before hours of training, not after."""
    if (options.source_file is None) != (options.target_file is None):
        raise ValueError(
            "--source-file and --target-file belong together: line i of one is the translation of "
            f"line i of the other. Received: --source-file {options.source_file}, --target-file "
            f"{options.target_file}"
        )
    if options.tsv is not None and options.source_file is not None:
        raise ValueError("Give --tsv, or --source-file and --target-file, not both.")
    if options.translate is not None:
        source, target = map(Path, options.translate)
        if not source.is_file():
            raise FileNotFoundError(f"--translate: there is no file '{source}'.")
        if not target.parent.is_dir():
            raise FileNotFoundError(f"--translate: there is no folder '{target.parent}'.")
    return options.tsv is not None or options.source_file is not None


def _recipe(
    name: str, options: argparse.Namespace, recipes: Mapping[str, TranslationConfig]
) -> TranslationConfig:
    """The settings of a corpus; of the direction and of the size of model, where it has such."""
    names = [name]
    if "fr" in (options.source_language, options.target_language):
        names.append(f"{name}_en_fr")
    if (options.preset or "").startswith("big"):
        names += [f"{known}_big" for known in names]
    return recipes[[known for known in names if known in recipes][-1]]


def _filters(options: argparse.Namespace) -> Filters | None:
    if options.max_words is None and options.max_ratio is None and not options.drop_duplicates:
        return None
    return Filters(options.max_words, options.max_ratio, options.drop_duplicates)


def _plan(corpus: Corpus, config: TranslationConfig, options: argparse.Namespace) -> dict[str, Any]:
    plan = plan_training(corpus, config, try_longest=options.plan_try)
    print(plan)
    figures = plan.as_dict()
    if options.plan_json is not None:
        write_atomically(options.plan_json, json.dumps(figures, indent=2) + "\n")
    return figures


def _configured(config: TranslationConfig, options: argparse.Namespace) -> TranslationConfig:
    """The recipe with what was asked for on the command line."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    asked = {setting: given[name] for name, setting in SETTINGS.items() if name in given}
    if asked.get("tokenizer_algorithm", "bpe") != "bpe":
        asked = {"bpe_dropout": 0.0, **asked}
    # One of these in the recipe gives way to the other on the command line.
    if "checkpoint_minutes" in asked:
        asked = {"checkpoint_updates": None, **asked}
    elif "checkpoint_updates" in asked:
        asked["checkpoint_minutes"] = None
    if asked.get("strategy") == "none":
        asked["strategy"] = None
    if options.preset is not None and options.preset != config.preset:
        # What was chosen for the recipe's own model.
        asked = {"model_arguments": {}, **asked}
        if config.peak_learning_rate is not None:
            warmup_steps = TranslationConfig.warmup_steps
            asked = {"peak_learning_rate": None, "warmup_steps": warmup_steps, **asked}
    if options.steps is not None or options.minutes is not None:
        asked |= {"steps": options.steps, "minutes": options.minutes}
    if options.mixed_precision:
        asked["dtype"] = "mixed_bfloat16"
    return dataclasses.replace(config, **asked)


def _corpus(name: str, options: argparse.Namespace, filters: Filters | None) -> Corpus:
    arguments: dict[str, Any] = {
        "source_language": options.source_language,
        "target_language": options.target_language,
        "filters": filters,
    }
    if options.tsv is not None:
        return corpus_from_tsv(options.tsv, name=options.tsv.stem, **arguments)
    if name == "files":
        files = (options.source_file, options.target_file)
        return corpus_from_files(files, name=options.source_file.stem, **arguments)
    return load_corpus(name, data_dir=options.data_dir, **arguments)


def _fresh_folder(name: str, preset: str) -> Path:
    return Path("runs") / f"{name}-{preset}-{time.strftime('%Y%m%d-%H%M%S')}"


def _translate_file(folder: Path, config: TranslationConfig, source: str, target: str) -> None:
    import keras

    from keras_attention.data.tokenizer import Tokenizer
    from keras_attention.decoding.translator import Translator

    run_folder = RunFolder(folder)
    model = keras.saving.load_model(run_folder.model, compile=False)
    translator = Translator(
        model,
        Tokenizer.load(run_folder.tokenizer),
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
    )
    translator.translate_file(source, target)
    print(f"Translated {source} into {target}")
