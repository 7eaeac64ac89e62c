"""`keras-attention translate RUN`: lines in, translations out, in order and in constant memory."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from keras_attention.cli.bulk_options import (
    add_bulk_options,
    expanded,
    refuse_spread,
    spread,
)
from keras_attention.cli.options import Parser
from keras_attention.cli.quiet import start_backend
from keras_attention.data.parallel_text import lines_of
from keras_attention.decoding.result_lines import result_lines
from keras_attention.utils.backend import BACKENDS
from keras_attention.utils.files import atomic_file, check_destination
from keras_attention.utils.progress import Progress, say

# Lines that are sorted by length and translated together.
CHUNK_LINES = 1000
EXAMPLE = """
examples:
  echo "The dog sleeps." | keras-attention translate runs/demo
  keras-attention translate runs/demo --input new.en --output new.de
  keras-attention translate runs/demo --input 'corpus/*.gz' --output-dir translated --ray
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Translate the standard input, or a file."""
    options = _parser(program).parse_args(arguments)
    if not 1 <= options.n_best:
        raise ValueError(f"--n-best must be at least 1. Received: {options.n_best}")
    if options.output_dir is not None:
        _translate_corpus(options)
        return
    refuse_spread(options, "--output-dir")
    if options.input is not None:
        if len(options.input) > 1:
            raise ValueError(
                f"Several files of --input need --output-dir. Received: {len(options.input)} files"
            )
        options.input = Path(options.input[0])
    if options.input is not None and not options.input.is_file():
        raise FileNotFoundError(f"--input: there is no file '{options.input}'.")
    if options.output is not None:
        sources = [] if options.input is None else [options.input]
        check_destination(options.output, sources=sources)
    with contextlib.ExitStack() as files:
        lines: Any = sys.stdin.buffer
        if options.input is not None:
            lines = files.enter_context(open(options.input, "rb"))
        # A terminal shows the translations themselves.
        shows = options.output is not None or not (lines.isatty() or sys.stdout.isatty())
        translator = _translator(options, program, shows)
        written: IO[Any] = sys.stdout
        if options.output is not None:
            written = files.enter_context(atomic_file(options.output, "w"))
        name = str(options.input or "the standard input")
        progress = files.enter_context(Progress(None, name, enabled=shows))
        for number, chunk in _chunks(lines, name):
            found = result_lines(translator, chunk, number, options.n_best, options.json)
            for text in found:
                written.write(f"{text}\n")
            written.flush()
            progress.values(f"{number + len(chunk):,} lines")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="Translate lines of UTF-8 text with a finished run: one output line per input line.",
        epilog=EXAMPLE,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the run's folder")
    add(
        "--input",
        nargs="+",
        metavar="FILE",
        help="file to translate (standard input); with --output-dir, several files or patterns",
    )
    add("--output", type=Path, metavar="FILE", help="a new file (standard output)")
    add_bulk_options(add)
    add("--beam-size", type=int, metavar="N", help="hypotheses kept (the run's)")
    add("--length-penalty", type=float, metavar="X", help="the paper's alpha (the run's)")
    add(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="number of translations per line, written as by Moses: LINE ||| TEXT ||| SCORE (1: only "
        "the text)",
    )
    add("--json", action="store_true", help="write a JSON object per line, with all n best")
    add("--batch-tokens", type=int, metavar="N", help="source positions in a batch (2048)")
    add(
        "--precision",
        metavar="NAME",
        help="float32, bfloat16, float16 or int8 (that of the model)",
    )
    add(
        "--engine",
        metavar="NAME",
        help="what decodes: auto, numba, tensorflow, torch, jax, plain (the search that defines the "
        "result), or ctranslate2, which has its own search (auto)",
    )
    return parser


def _translator(options: argparse.Namespace, program: str, shows_progress: bool) -> Any:
    given = {**_search_options(options), "show_progress": shows_progress}
    from keras_attention.decoding.translator import Translator
    from keras_attention.spec import SpecError

    try:
        translator = Translator.from_spec(options.run, **given)
    except SpecError:  # There is none, or no engine that runs it without Keras.
        _start_backend(options)
        translator = Translator.from_run(options.run, **given)
    if options.n_best > translator.beam_size:
        raise ValueError(
            f"--n-best must be at most the beam size, which is {translator.beam_size}. Raise "
            f"--beam-size. Received: {options.n_best}"
        )
    name, reason = translator.engine_for(1)
    say(f"{program}: decoded by {name}. {reason}")
    return translator


def _start_backend(options: argparse.Namespace) -> None:
    """Start Keras, on the backend whose engine was asked for."""
    if options.engine in BACKENDS:
        os.environ.setdefault("KERAS_BACKEND", options.engine)
    start_backend()


def _search_options(options: argparse.Namespace) -> dict[str, Any]:
    names = ("beam_size", "length_penalty", "batch_tokens", "precision", "engine")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _translate_corpus(options: argparse.Namespace) -> None:
    """Many files or large ones, in chunks."""
    if options.input is None or options.output is not None:
        raise ValueError("--output-dir needs --input, and cannot be combined with --output.")
    inputs = expanded("--input", options.input)
    given = spread(options)
    _start_backend(options)
    from keras_attention.recipes.bulk import translate_corpus

    results = translate_corpus(
        options.run,
        inputs,
        options.output_dir,
        n_best=options.n_best,
        as_json=options.json,
        **given,
        **_search_options(options),
    )
    for path in results:
        print(path)


def _chunks(lines: io.BufferedReader, name: str) -> Iterator[tuple[int, list[str]]]:
    """Some lines at a time, with the number of the first; single ones where somebody types them."""
    size = 1 if lines.isatty() else CHUNK_LINES
    number = 0
    texts = lines_of(lines, name)
    while chunk := list(itertools.islice(texts, size)):
        yield number, chunk
        number += len(chunk)
