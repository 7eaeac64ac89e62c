"""`keras-attention score MODEL`: how probable given translations are."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from typing import Any

from keras_attention.cli.decoding_options import (
    add_bulk_options,
    add_language_options,
    expanded,
    spread,
)
from keras_attention.cli.models import MODEL_HELP, check_model, keras_translator
from keras_attention.cli.options import Parser, adding, flag, given
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import CHUNK_LINES, chunks_as_they_come
from keras_attention.data.parallel_text import FilePairs
from keras_attention.utils.progress import say
from keras_attention.utils.sides import LANGUAGES

EXAMPLE = """
examples:
  keras-attention score runs/demo --source-file new.en --target-file new.de
  keras-attention score runs/demo --source-file 'a/*.gz' --target-file 'b/*.gz' --output-dir scores --ray
"""


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="Print, for each pair, the natural logarithm of the translation's probability, end "
        "token included. Pairs come from two files, or from the standard input with source, tab and "
        "translation on each line.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    several = "with --output-dir, several files or patterns"
    add("--source-file FILE", f"sentences, one per line; {several}", nargs="+")
    add("--target-file FILE", "their translations", nargs="+")
    add_language_options(add)
    add_bulk_options(add)
    return parser


def main(arguments: Sequence[str], program: str) -> None:
    """Print the log-probability of every pair of lines."""
    options = _parser(program).parse_args(arguments)
    if (options.source_file is None) != (options.target_file is None):
        raise ValueError("--source-file and --target-file belong together.")
    many = spread(options)
    languages = given(options, LANGUAGES)
    check_model(options.model, **languages)
    if options.output_dir is not None:
        _score_corpus(options, {**many, **languages})
        return
    for name in ("source_file", "target_file"):
        if len(getattr(options, name) or ()) > 1:
            raise ValueError(f"Several files of {flag(name)} need --output-dir.")
    files = None
    if options.source_file is not None:
        files = FilePairs(options.source_file[0], options.target_file[0])
    start_backend()
    from keras_attention.decoding.unusual_texts import UnusualTexts
    from keras_attention.recipes.scoring import log_probabilities

    translator = keras_translator(options.model, **languages)
    parts = translator.model, translator.tokenizer
    unusual = UnusualTexts("sources", first=1, longest=translator.longest_source)

    def answer(pairs: Sequence[tuple[str, str]]) -> None:
        sources, targets = zip(*pairs, strict=True)
        for value in log_probabilities(*parts, sources, targets, unusual=unusual):
            print(f"{value:.6f}")
        sys.stdout.flush()

    if files is None:
        chunks_as_they_come(
            sys.stdin.buffer,
            "the standard input",
            lambda done, lines: answer(list(map(_pair, itertools.count(done + 1), lines))),
        )
    else:
        pairs = iter(files)
        while chunk := list(itertools.islice(pairs, CHUNK_LINES)):
            answer(chunk)
    if message := unusual.message():
        say(f"{program}: {message}")


def _score_corpus(options: argparse.Namespace, many: dict[str, Any]) -> None:
    if options.source_file is None:
        raise ValueError("--output-dir needs --source-file and --target-file.")
    sources = expanded("--source-file", options.source_file)
    translations = expanded("--target-file", options.target_file)
    start_backend()
    from keras_attention.recipes.bulk import score_corpus

    for path in score_corpus(options.model, sources, translations, options.output_dir, **many):
        print(path)


def _pair(number: int, line: str) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise ValueError(
            f"The standard input, line {number} must be a source, one tab and a translation."
        )
    return source, target
