"""The command line of the parser: `examples/constituency_parsing.py`."""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

from keras_attention.callbacks.nonfinite import NonFiniteTraining
from keras_attention.data.treebanks import Treebank, load_treebank, treebank_from_files
from keras_attention.experiments.parsing import (
    OPTIONAL_SYSTEMS,
    PARSING_RECIPES,
    SYSTEMS,
    train_parser,
)
from keras_attention.models.presets import PRESETS
from keras_attention.recipes.config import TranslationConfig

# Options that are fields of the configuration, where they are given.
FIELDS = ("preset", "vocabulary_size", "batch_tokens", "beam_size", "length_penalty", "seed")
OWN_FILES = "files"


def run(description: str | None, arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the arguments, train a parser, score it.

    Args:
        description: What `--help` says first.
        arguments: Arguments instead of `sys.argv`.

    Returns:
        The report; see `parsing_report`.
    """
    parser = _parser(description)
    options = parser.parse_args(arguments)
    try:
        treebank = _treebank(options)
        config = _configured(PARSING_RECIPES[treebank.name], options)
        name = f"parsing-{treebank.name}-{config.preset}"
        output_dir = options.output_dir or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        return train_parser(
            treebank,
            config,
            output_dir,
            tags=not options.no_tags,
            systems=[*SYSTEMS, *(OPTIONAL_SYSTEMS if options.pcfg else ())],
            test_sentences=options.test_sentences,
        )
    except (ValueError, OSError, MemoryError, ImportError, NonFiniteTraining) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt as stop:
        # 143 after SIGTERM; a Ctrl-C outside of training says no code.
        parser.exit(getattr(stop, "exit_code", 130))


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        epilog="What is not given is taken from the recipe of the treebank.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument_group("trees").add_argument
    named = [name for name in PARSING_RECIPES if name != OWN_FILES]
    add("--treebank", choices=named, default="wsj_sample", help="wsj_sample if not given")
    add("--data-dir", type=Path, help="folder with its files; downloaded if not given")
    add("--train", type=Path, nargs="+", help="your own trees: files, or folders of them")
    add("--validation", type=Path, nargs="+", help="and those to validate with")
    add("--test", type=Path, nargs="+", help="and to test with")
    add("--no-tags", action="store_true", help="write XX in the place of part-of-speech tags")
    add("--test-sentences", type=int, help="parse so many of the test part, spread evenly")
    add("--pcfg", action="store_true", help="a grammar read off the training part, too: slow")
    add = parser.add_argument_group("model, training, search").add_argument
    add("--preset", metavar="NAME", choices=list(PRESETS), help="parsing: the paper's size")
    add("--vocabulary-size", type=int, help="pieces of words and symbols of trees together")
    add("--steps", type=int, help="most updates")
    add("--minutes", type=float, help="most minutes of training")
    add("--batch-tokens", type=int, help="positions of a batch on either side")
    add("--seed", type=int, help="decides weights, dropout and order")
    add("--mixed-precision", action="store_true", help="bfloat16 products, float32 weights")
    add("--beam-size", type=int, help="hypotheses kept; the paper: 21")
    add("--length-penalty", type=float, help="alpha; the paper: 0.3")
    add("--output-dir", type=Path, help="the run's folder; the same command goes on with a run")
    return parser


def _treebank(options: argparse.Namespace) -> Treebank:
    own = {part: getattr(options, part) for part in ("train", "validation", "test")}
    if not any(own.values()):
        return load_treebank(options.treebank, options.data_dir)
    missing = [f"--{part}" for part, files in own.items() if not files]
    if missing or options.data_dir is not None:
        raise ValueError(
            "Your own trees need --train, --validation and --test, and no --data-dir. "
            f"Received: without {', '.join(missing) or 'none'}, --data-dir {options.data_dir}"
        )
    return treebank_from_files(**own, name=OWN_FILES)


def _configured(config: TranslationConfig, options: argparse.Namespace) -> TranslationConfig:
    """The recipe with what was asked for on the command line."""
    asked: dict[str, Any] = {
        name: value for name in FIELDS if (value := getattr(options, name)) is not None
    }
    if options.preset not in (None, config.preset):
        # What was chosen for the recipe's own model.
        warmup_steps = TranslationConfig.warmup_steps
        asked |= {"model_arguments": {}, "peak_learning_rate": None, "warmup_steps": warmup_steps}
    if options.steps is not None or options.minutes is not None:
        asked |= {"steps": options.steps, "minutes": options.minutes}
    if options.mixed_precision:
        asked["dtype"] = "mixed_bfloat16"
    return dataclasses.replace(config, **asked)
