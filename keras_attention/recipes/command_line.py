"""The command line that the examples share."""

import argparse
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_attention.data.corpora import (
    Corpus,
    corpus_from_files,
    corpus_from_tsv,
    load_corpus,
)
from keras_attention.models.presets import PRESETS
from keras_attention.recipes.settings import RECIPES
from keras_attention.recipes.translation import TranslationConfig, train_translation


def run(
    description: str | None,
    default_corpus: str = "demo",
    arguments: list[str] | None = None,
    recipes: Mapping[str, TranslationConfig] = RECIPES,
) -> dict[str, Any]:
    """Parse the arguments, train, report, and translate a file if asked to.

    Args:
        description: What `--help` says first.
        default_corpus: Corpus without `--corpus`.
        arguments: Arguments instead of `sys.argv`.
        recipes: Settings for each corpus name; "files" serves for the user's own files.

    Returns:
        The run's report.
    """
    parser = _parser(description, sorted(recipes), default_corpus)
    options = parser.parse_args(arguments)
    try:
        own_files = _check_files(options)
        name = "files" if own_files else options.corpus
        config = _configured(recipes[name], options)
        corpus = _corpus(name, options)
        output_dir = options.output_dir or _fresh_folder(name, config.preset)
        report = train_translation(corpus, config, output_dir)
        if options.translate is not None:
            _translate_file(output_dir, config, *options.translate)
    except (ValueError, FileNotFoundError, ConnectionError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130)
    return report


def _parser(description: str | None, corpora: list[str], default: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        epilog="What is not given is taken from the recipe of the corpus.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    named = [name for name in corpora if name != "files"]
    add("--corpus", default=default, choices=named, help=f"corpus by name, {default} if not given")
    add("--data-dir", type=Path, help="folder with the corpus' files; downloaded if not given")
    add("--source-language", default="en", help="language code, en if not given")
    add("--target-language", default="de", help="language code, de if not given")
    add("--source-file", type=Path, help="your own text, one sentence a line, plain or gzip")
    add("--target-file", type=Path, help="its translation, line by line")
    add("--tsv", type=Path, help="your own pairs: source, tab, target")
    add("--translate", nargs=2, metavar=("IN", "OUT"), help="then translate the file IN into OUT")
    add("--preset", metavar="NAME", choices=list(PRESETS), help=f"size: {', '.join(PRESETS)}")
    add("--vocabulary-size", type=int, help="word-pieces of the shared vocabulary")
    add("--steps", type=int, help="most updates")
    add("--minutes", type=float, help="most minutes of training")
    add("--batch-tokens", type=int, help="positions of a batch on either side")
    add("--mixed-precision", action="store_true", help="bfloat16 products, float32 weights")
    add("--output-dir", type=Path, help="the run's folder; the same command goes on with a run")
    add("--seed", type=int, help="decides weights, dropout and order")
    return parser


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


def _configured(config: TranslationConfig, options: argparse.Namespace) -> TranslationConfig:
    """The recipe with what was asked for on the command line."""
    names = ("preset", "vocabulary_size", "batch_tokens", "seed")
    asked = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.preset is not None and options.preset != config.preset:
        asked["model_arguments"] = {}
    if options.steps is not None or options.minutes is not None:
        asked |= {"steps": options.steps, "minutes": options.minutes}
    if options.mixed_precision:
        asked["dtype"] = "mixed_bfloat16"
    return dataclasses.replace(config, **asked)


def _corpus(name: str, options: argparse.Namespace) -> Corpus:
    languages = {
        "source_language": options.source_language,
        "target_language": options.target_language,
    }
    if options.tsv is not None:
        return corpus_from_tsv(options.tsv, name=options.tsv.stem, **languages)
    if name == "files":
        files = (options.source_file, options.target_file)
        return corpus_from_files(files, name=options.source_file.stem, **languages)
    return load_corpus(name, data_dir=options.data_dir, **languages)


def _fresh_folder(name: str, preset: str) -> Path:
    return Path("runs") / f"{name}-{preset}-{time.strftime('%Y%m%d-%H%M%S')}"


def _translate_file(folder: Path, config: TranslationConfig, source: str, target: str) -> None:
    import keras

    from keras_attention.data.tokenizer import Tokenizer
    from keras_attention.decoding.translator import Translator

    model = keras.saving.load_model(Path(folder) / "model.keras", compile=False)
    translator = Translator(
        model,
        Tokenizer.load(Path(folder) / "tokenizer"),
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
    )
    translator.translate_file(source, target)
    print(f"Translated {source} into {target}")
