"""`keras-attention translate RUN`: lines in, translations out, in order and in constant memory."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from keras_attention.cli.quiet import start_backend
from keras_attention.utils.files import atomic_file, check_destination

# Lines that are sorted by length and translated together.
CHUNK_LINES = 1000
EXAMPLE = """
examples:
  echo "The dog sleeps." | keras-attention translate runs/demo
  keras-attention translate runs/demo --input new.en --output new.de
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Translate the standard input, or a file."""
    options = _parser(program).parse_args(arguments)
    if not 1 <= options.n_best:
        raise ValueError(f"--n-best must be at least 1. Received: {options.n_best}")
    if options.input is not None and not options.input.is_file():
        raise FileNotFoundError(f"--input: there is no file '{options.input}'.")
    if options.output is not None:
        sources = [] if options.input is None else [options.input]
        check_destination(options.output, sources=sources)
    translator = _translator(options)
    with contextlib.ExitStack() as files:
        lines: IO[Any] = sys.stdin.buffer
        if options.input is not None:
            lines = files.enter_context(open(options.input, "rb"))
        written: IO[Any] = sys.stdout
        if options.output is not None:
            written = files.enter_context(atomic_file(options.output, "w"))
        name = str(options.input or "the standard input")
        for number, chunk in _chunks(lines, name):
            for text in _results(translator, chunk, number, options):
                written.write(f"{text}\n")
            written.flush()


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Translate lines of UTF-8 text with a finished run; line i belongs to line i.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the run's folder")
    add("--input", type=Path, metavar="FILE", help="lines to translate (the standard input)")
    add("--output", type=Path, metavar="FILE", help="a new file (the standard output)")
    add("--beam-size", type=int, metavar="N", help="hypotheses kept (the run's)")
    add("--length-penalty", type=float, metavar="X", help="the paper's alpha (the run's)")
    add(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="so many translations of a line, as Moses writes them: LINE ||| TEXT ||| SCORE (1: the "
        "text alone)",
    )
    add("--json", action="store_true", help="a JSON object for each line, with all n best")
    add("--batch-tokens", type=int, metavar="N", help="source positions of a batch (2048)")
    add(
        "--precision",
        metavar="NAME",
        help="float32, bfloat16, float16 or int8 (that of the model)",
    )
    return parser


def _translator(options: argparse.Namespace) -> Any:
    start_backend()
    from keras_attention.decoding.translator import Translator

    names = ("beam_size", "length_penalty", "batch_tokens", "precision")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    translator = Translator.from_run(options.run, show_progress=options.input is not None, **given)
    if options.n_best > translator.beam_size:
        raise ValueError(
            f"--n-best must be at most the beam size, which is {translator.beam_size}. Raise "
            f"--beam-size. Received: {options.n_best}"
        )
    return translator


def _chunks(lines: IO[bytes], name: str) -> Iterator[tuple[int, list[str]]]:
    """Some lines at a time, with the number of the first; single ones where somebody types them."""
    size = 1 if lines.isatty() else CHUNK_LINES
    number = 0
    while chunk := list(itertools.islice(lines, size)):
        texts = []
        for index, line in enumerate(chunk, start=number + 1):
            try:
                texts.append(line.decode("utf-8-sig" if index == 1 else "utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                raise ValueError(f"{name}, line {index} is not UTF-8: {error}.") from None
        yield number, texts
        number += len(chunk)


def _results(
    translator: Any, sources: list[str], number: int, options: argparse.Namespace
) -> Iterator[str]:
    for index, (source, found) in enumerate(
        zip(sources, translator.translate(sources, options.n_best), strict=True), start=number
    ):
        # A tokenizer of bytes can spell a line break, which would shift all lines after it.
        best = [(" ".join(one.text.splitlines()), one.score) for one in found]
        if options.json:
            translations = [{"text": text, "score": score} for text, score in best]
            yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
        elif options.n_best > 1:
            yield from (f"{index} ||| {text} ||| {score:.6f}" for text, score in best)
        else:
            yield best[0][0]
