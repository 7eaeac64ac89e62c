"""`keras-attention score RUN`: how probable given translations are."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_attention.cli.quiet import start_backend

CHUNK_LINES = 1000


def main(arguments: Sequence[str], program: str) -> None:
    """Print the log-probability of every pair of lines."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Read pairs, a source, a tab and a translation on each line of the standard input, "
        "or two files; print the natural logarithm of the translation's probability, end token "
        "included, a line for each.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--source-file", type=Path, metavar="FILE", help="sentences, one a line")
    parser.add_argument("--target-file", type=Path, metavar="FILE", help="their translations")
    options = parser.parse_args(arguments)
    if (options.source_file is None) != (options.target_file is None):
        raise ValueError("--source-file and --target-file belong together.")
    start_backend()
    from keras_attention.data.parallel_text import FilePairs
    from keras_attention.decoding.translator import Translator
    from keras_attention.recipes.scoring import log_probabilities

    translator = Translator.from_run(options.run)
    pairs: Iterator[tuple[str, str]] = map(_pair, itertools.count(1), sys.stdin.buffer)
    if options.source_file is not None:
        pairs = iter(FilePairs(options.source_file, options.target_file))
    while chunk := list(itertools.islice(pairs, CHUNK_LINES)):
        sources, targets = zip(*chunk, strict=True)
        for value in log_probabilities(translator.model, translator.tokenizer, sources, targets):
            print(f"{value:.6f}")
        sys.stdout.flush()


def _pair(number: int, line: bytes) -> tuple[str, str]:
    try:
        source, tab, target = line.decode("utf-8").rstrip("\r\n").partition("\t")
    except UnicodeDecodeError as error:
        raise ValueError(f"The standard input, line {number} is not UTF-8: {error}.") from None
    if not tab or "\t" in target:
        raise ValueError(
            f"The standard input, line {number} must be a source, one tab and a translation."
        )
    return source, target
