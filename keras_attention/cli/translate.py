"""`keras-attention translate MODEL`: lines in, translations out, in order and in constant memory."""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from keras_attention.cli.decoding_options import (
    BESIDE,
    NAMES,
    LinesBeside,
    add_bulk_options,
    add_choice_options,
    add_language_options,
    add_search_options,
    choose_backend,
    expanded,
    refuse_together,
    spread,
    translator_choices,
)
from keras_attention.cli.models import MODEL_HELP, check_model, keras_translator, light_translator
from keras_attention.cli.options import NONE, Parser, adding, flag, given
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import chunks_as_they_come
from keras_attention.decoding.result_lines import naming_lines, result_lines
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.utils.arguments import Count, FromZero
from keras_attention.utils.files import atomic_file, check_destination
from keras_attention.utils.progress import Progress, say
from keras_attention.utils.sides import LANGUAGES

# Characters of a line; one of 10 MB would take gigabytes.
LONGEST_LINE = 20_000
# What is of one model, or of its texts.
NOT_TWICE = ("ensemble", "mbr", "alignment", "markup", "glossary", "split_sentences", "output_dir")
EXAMPLE = """
examples:
  echo "The dog sleeps." | keras-attention translate runs/demo
  keras-attention translate runs/demo --input new.en --output new.de
  keras-attention translate runs/demo --input 'corpus/*.gz' --output-dir translated --ray
  keras-attention translate runs/demo --sample --top-k 20 --n-best 5 --input new.en
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Translate the standard input, or a file."""
    options = _parser(program).parse_args(arguments)
    many = spread(options)
    _check_search(options)
    if options.output_dir is not None:
        _translate_corpus(options, many)
        return
    source = _input_file(options)
    if options.output is not None:
        check_destination(options.output, sources=[] if source is None else [source])
    _translate_lines(options, program, source)


def _input_file(options: argparse.Namespace) -> Path | None:
    """Return the file that is translated as its lines are read; None for the standard input."""
    if options.input in (None, ["-"]):
        return None
    if len(options.input) > 1:
        raise ValueError(
            f"Several files of --input need --output-dir. Received: {len(options.input)} files"
        )
    if "://" in options.input[0]:
        raise ValueError(f"A URL of --input needs --output-dir. Received: {options.input[0]}")
    source = Path(options.input[0])
    if source.is_dir() or not source.exists():
        raise FileNotFoundError(f"--input: there is no file '{source}'.")
    return source


def _translate_lines(options: argparse.Namespace, program: str, source: Path | None) -> None:
    with contextlib.ExitStack() as files:
        lines: Any = sys.stdin.buffer
        if source is not None:
            lines = files.enter_context(open(source, "rb"))
        # A terminal shows the translations themselves.
        shows = options.output is not None or not (lines.isatty() or sys.stdout.isatty())
        translator = _translator(options, program, shows)
        written: IO[Any] = sys.stdout
        if options.output is not None:
            written = files.enter_context(atomic_file(options.output, "w", is_new=True))
        name = str(source or "the standard input")
        progress = files.enter_context(Progress(None, name, enabled=shows))
        asking, details = translator, None
        if aligned := _aligned(options):
            from keras_attention.recipes.aligning import reading_attention

            asking, details = reading_attention(translator, aligned, options.alignment_head)
        is_split = options.split_sentences is not None
        unusual = UnusualTexts("sentences" if is_split else "lines", first=1)
        beside = LinesBeside(options, files)

        def answer(number: int, chunk: list[str]) -> None:
            for index, line in enumerate([] if is_split else chunk, start=number + 1):
                if len(line) > (most := options.max_line or LONGEST_LINE):
                    raise ValueError(
                        f"Line {index} has {len(line):,} characters; at most {most:,} are "
                        "translated at once. Split it (--split-sentences), or raise --max-line."
                    )
            asked = {"mbr": options.mbr, **beside.take(number, len(chunk)), "details": details}
            asked |= {"unique": options.unique, "unusual": unusual}
            lines: Iterable[str]
            if is_split:
                with naming_lines(number):
                    found = translator(chunk, unusual)
                lines = (" ".join(text.splitlines()) for text in found)
            else:
                lines = result_lines(asking, chunk, number, options.n_best, options.json, **asked)
            for text in lines:
                written.write(f"{text}\n")
            written.flush()
            progress.values(f"{number + len(chunk):,} lines")

        chunks_as_they_come(lines, name, answer)
        beside.check_end()
        if message := unusual.message():
            say(f"{program}: {message}")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="Translate lines of UTF-8 text with a trained model: one output line per input line.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    add(
        "--checkpoint NAME",
        "translate with a checkpoint of the run, which need not be finished: last, average (of those "
        "that the run would average now), best (by --best-by), or a name such as update-00000400 (the "
        "finished model)",
    )
    source = (
        "file to translate (standard input, or -); with --output-dir, several files or patterns"
    )
    add("--input FILE", source, nargs="+")
    add("--output FILE", "a new file (standard output)", Path)
    longest = "most characters of a line, for which memory grows with its square (20,000)"
    add("--max-line N", longest, Count)
    add_bulk_options(add)
    add_search_options(parser)
    _add_written_options(add)
    prefix = "text put before every line, such as the tag <2de>; none for none (the run's)"
    add("--source-prefix TEXT", prefix)
    add_language_options(add)
    then = (
        "translate the translations with this model: what is said of scores, n best and contents is of its "
        "translations"
    )
    add("--then MODEL", then)
    add_choice_options(parser)
    return parser


def _add_written_options(add: Any) -> None:
    """Add what says which translations are written, and what beside them, by `adding`."""
    add(
        "--n-best N",
        "number of translations per line, written as by Moses: LINE ||| TEXT ||| SCORE (1: only "
        "the text)",
        Count,
        default=1,
    )
    add(
        "--unique",
        "whether the n best differ in their text; there may be fewer then (yes, but samples: no)",
        action=argparse.BooleanOptionalAction,
    )
    add("--json", "write a JSON object per line, with all n best")
    add(
        "--alignment",
        "write which source word each word comes from, behind the text: ||| 0-0 2-1, numbers of words "
        "between spaces; with --json the scores of tokens, too",
    )
    add(
        "--alignment-head LAYER HEAD",
        "the head of the cross-attention that says so, counted from 0 (of a run, the one "
        "that learned alignments, or that aligned its validation set best if true ones were known; else the "
        "mean of all)",
        FromZero,
    )
    add(
        "--markup",
        "put tags such as <b> and placeholders such as {0} or %%s where words have gone, by alignment",
    )


def _translator(options: argparse.Namespace, program: str, shows_progress: bool) -> Any:
    if options.then is not None:
        plain = vars(_parser(program).parse_args([options.model]))
        kept = (*NAMES, "model", "checkpoint", "source_prefix", "source_language")
        first = {**plain, **{name: getattr(options, name) for name in kept}}
        second = {**vars(options), **dict.fromkeys(kept[-3:]), "model": options.then, "then": None}
        made = [_translator(argparse.Namespace(**each), program, False) for each in (first, second)]
        return made[0].then(made[1])
    given = {**_search_options(options), "show_progress": shows_progress}
    if options.checkpoint is None and (options.ensemble or options.alignment):
        start_backend()
        translator = keras_translator(options.model, **given)
        if options.ensemble:
            translator = _ensemble(translator, options)
    else:
        if options.phrases_file or options.glossary:
            start_backend()
        translator = light_translator(options.model, options.checkpoint, **given)
    if options.source_prefix is not None:
        # A copy: the same model, read once, may translate again without.
        tokenizer = copy.copy(translator.tokenizer)
        if options.target_language is not None and tokenizer.tags:
            raise ValueError(
                f"--target-language puts '{tokenizer.source_prefix}' before each line. Leave it out, or "
                f"--source-prefix. Received: --source-prefix {options.source_prefix}"
            )
        tokenizer.source_prefix = None if options.source_prefix == NONE else options.source_prefix
        translator = dataclasses.replace(translator, tokenizer=tokenizer)
    beside = {name: getattr(options, file) is not None for name, file in BESIDE.items()}
    beside["phrases"] |= options.glossary is not None
    name, reason = translator.engine_for(1, **beside)
    say(f"{program}: decoded by {name}. {reason}")
    if note := _note_on_tags(translator.tokenizer):
        say(f"{program}: {note}")
    return translator


def _aligned(options: argparse.Namespace) -> Literal["alignment", "markup"] | None:
    return "alignment" if options.alignment else "markup" if options.markup else None


def _note_on_tags(tokenizer: Any) -> str:
    """Return what is put before every line, or that a tag may be missing there; or an empty text."""
    if tokenizer.source_prefix is not None:
        return f"Each line gets the prefix '{tokenizer.source_prefix}'."
    languages = [symbol for symbol in tokenizer.symbols if symbol.startswith("<2")]
    if not languages:
        return ""
    return (
        f"The model was trained with the tags {', '.join(languages)}. Begin each line with one, or give "
        "--source-prefix."
    )


def _ensemble(translator: Any, options: argparse.Namespace) -> Any:
    """Return a translator with several models, and the tokenizer and search settings of one."""
    models = [translator.model]
    for name in options.ensemble:
        other = keras_translator(name, show_progress=False)
        if _bare(other.tokenizer) != _bare(translator.tokenizer):
            raise ValueError(
                f"--with: '{name}' has another vocabulary than '{options.model}'. The models of an ensemble "
                "are trained with one tokenizer."
            )
        prefixes = [one.tokenizer.source_prefix for one in (translator, other)]
        if options.source_prefix is None and prefixes[0] != prefixes[1]:
            shown = [NONE if prefix is None else prefix for prefix in prefixes]
            raise ValueError(
                f"--with: '{options.model}' puts '{shown[0]}' before every line, '{name}' puts '{shown[1]}'. "
                "Say which with --source-prefix."
            )
        models.append(other.model)
    return dataclasses.replace(translator, model=models)


def _bare(tokenizer: Any) -> str:
    """Return the fingerprint of a tokenizer without its prefix, which is no part of the vocabulary."""
    bare = copy.copy(tokenizer)
    bare.source_prefix = None
    return bare.fingerprint()


def _check_search(options: argparse.Namespace) -> None:
    """Refuse what needs no backend to be refused, which takes long to start."""
    from keras_attention.decoding.translator import Translator

    named = LANGUAGES if options.then is None else LANGUAGES[:1]
    settings = check_model(options.model, options.checkpoint, **given(options, named))
    if options.checkpoint is not None:
        refuse_together(options, ("ensemble",), "--checkpoint")
    if options.then is not None:
        refuse_together(options, NOT_TWICE, "--then")
        settings = check_model(options.then, **given(options, LANGUAGES[1:]))
    for name in options.ensemble or ():
        check_model(name)
    aligned = _aligned(options)
    if options.alignment_head is not None and aligned is None:
        raise ValueError("--alignment-head needs --alignment or --markup.")
    if aligned and options.ensemble:
        raise ValueError(
            f"--{aligned} cannot be combined with --with: each model has heads of its own."
        )
    if options.markup:
        refuse_together(options, ("alignment", "mbr"), "--markup")
    if options.sample:
        refuse_together(options, ("break_loops",), "--sample")
    beam_size = options.beam_size or settings.get("beam_size", Translator.beam_size)
    if options.mbr is not None and options.n_best > 1:
        raise ValueError("--mbr writes one translation: it cannot be combined with --n-best.")
    for name in ("n_best", "mbr"):
        number = getattr(options, name) or 1
        if number > beam_size and not options.sample:
            raise ValueError(
                f"{flag(name)} must be at most the beam size, which is {beam_size}. Lower it, or raise "
                f"--beam-size. Received: {number}"
            )
    choose_backend(options)


def _search_options(options: argparse.Namespace) -> dict[str, Any]:
    languages = given(options, LANGUAGES)
    return {**given(options, NAMES), **translator_choices(options), **languages}


def _translate_corpus(options: argparse.Namespace, many: dict[str, Any]) -> None:
    if options.input is None or options.output is not None:
        raise ValueError("--output-dir needs --input, and cannot be combined with --output.")
    others = (
        *("checkpoint", "source_prefix", "ensemble", "mbr"),
        *("split_sentences", "max_line", "glossary"),
    )
    refuse_together(options, others, "--output-dir")
    inputs = expanded("--input", options.input)
    files = {argument: getattr(options, name) for argument, name in BESIDE.items()}
    beside: dict[str, Any] = {
        argument: [file] for argument, file in files.items() if file is not None
    }
    for argument in beside:
        if len(inputs) > 1:
            raise ValueError(
                f"{flag(BESIDE[argument])} needs one file of --input. Received: {len(inputs)} files"
            )
    start_backend()
    from keras_attention.recipes.bulk import translate_corpus

    results = translate_corpus(
        options.model,
        inputs,
        options.output_dir,
        n_best=options.n_best,
        unique=options.unique,
        as_json=options.json,
        aligned=_aligned(options),
        alignment_head=options.alignment_head,
        **beside,
        **many,
        **_search_options(options),
    )
    for path in results:
        print(path)
