"""The command line of the parser: `examples/constituency_parsing.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention.cli.exits import naming_the_folder, orderly_exit
from keras_attention.cli.options import Parser, add_options
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.train import configured
from keras_attention.recipes.config import ModelOptions, TranslationConfig

if TYPE_CHECKING:
    from keras_attention.data.treebanks import Treebank

TREEBANKS = ("wsj_sample", "craft", "penn")
PARTS = ("train", "validation", "test")
SETTINGS = (
    "preset",
    "vocabulary_size",
    "steps",
    "minutes",
    "batch_tokens",
    "max_length",
    "warmup_steps",
    "peak_learning_rate",
    "seed",
    "dtype",
    "beam_size",
    "length_penalty",
)


def run(
    description: str | None,
    arguments: Sequence[str] | None = None,
    program: str | None = None,
) -> dict[str, Any]:
    """Parse the arguments, train a parser, score it.

    Args:
        description: What `--help` says first.
        arguments: Arguments instead of `sys.argv`.
        program: Name of the command; that of the script if not given.

    Returns:
        The report; see `parsing_report`.
    """
    parser = _parser(description, program)
    with orderly_exit(parser.prog):
        options = vars(parser.parse_args(arguments))
        start_backend()
        return _run(options)
    raise AssertionError("`orderly_exit` ends the process after an error.")


def _run(options: Mapping[str, Any]) -> dict[str, Any]:
    from keras_attention.experiments import parsing

    treebank = _treebank(options)
    config = configured(parsing.PARSING_RECIPES[treebank.name], options)
    name = f"parsing-{treebank.name}-{config.preset}"
    fresh = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = options.get("output_dir", fresh)
    with naming_the_folder(folder, "output_dir" in options):
        return parsing.train_parser(
            treebank,
            config,
            folder,
            leaves=options.get("leaves", parsing.PARSING_LEAVES[treebank.name]),
            systems=[*parsing.SYSTEMS, *(parsing.OPTIONAL_SYSTEMS if options["pcfg"] else ())],
            test_sentences=options.get("test_sentences"),
        )


def _parser(description: str | None, program: str | None) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description=description,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument_group("trees").add_argument
    add("--treebank", choices=TREEBANKS, help="which treebank (wsj_sample)")
    add("--data-dir", type=Path, metavar="PATH", help="folder with its files; else downloaded")
    for part in PARTS:
        text = f"your own trees to {part if part != 'validation' else 'validate'} with"
        add(f"--{part}", type=Path, nargs="+", metavar="PATH", help=f"{text}: files or folders")
    add(
        "--leaves",
        choices=("tags", "XX", "words"),
        help="what a tree has for each word: its part-of-speech tag, XX, or the word itself (words; for penn "
        "tags, as in the paper)",
    )
    add("--test-sentences", type=int, metavar="N", help="parse only N test sentences")
    add("--pcfg", action="store_true", default=False, help="also compare with a grammar: slow")
    group = parser.add_argument_group("settings (taken from the treebank's recipe if not given)")
    add_options(group, TranslationConfig, SETTINGS, dict.fromkeys(SETTINGS))
    add_options(group, ModelOptions)
    group.add_argument(
        "--output-dir", type=Path, metavar="PATH", help="the run's folder (runs/NAME-TIME)"
    )
    return parser


def _treebank(options: Mapping[str, Any]) -> Treebank:
    from keras_attention.data.treebanks import load_treebank, treebank_from_files

    own = {part: options[part] for part in PARTS if part in options}
    if not own:
        return load_treebank(options.get("treebank", TREEBANKS[0]), options.get("data_dir"))
    missing = [f"--{part}" for part in PARTS if part not in own]
    others = [f"--{name.replace('_', '-')}" for name in ("treebank", "data_dir") if name in options]
    if missing or others:
        raise ValueError(
            "Your own trees need --train, --validation and --test, without --treebank and "
            f"--data-dir. Received: {', '.join(f'--{part}' for part in own)} and "
            f"{', '.join(others) or 'no others'}"
        )
    return treebank_from_files(own["train"], own["validation"], own["test"])
