"""Options of the commands that decode: the search, what else is chosen, and corpora in chunks."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.options import adding, flag, given
from keras_attention.cli.streams import typed_text
from keras_attention.data.text_files import existing_file, lines_of
from keras_attention.decoding.requests import entries_of
from keras_attention.engine.select import EngineName, Precision
from keras_attention.utils.arguments import BeamSize, Count, FromZero, LeastLength, LengthPenalty
from keras_attention.utils.backend import BACKENDS
from keras_attention.utils.places import matching_files

NAMES = (
    *("beam_size", "length_penalty", "max_extra_length", "batch_tokens"),
    *("precision", "engine", "break_loops"),
)


GLOSSARY_HELP = (
    "lines of a term, a tab and its translation, which translations of lines with the term contain"
)


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add = adding(parser)
    add("--beam-size N", "hypotheses kept (the run's)", BeamSize)
    add("--length-penalty X", "the paper's alpha (the run's)", LengthPenalty)
    more = "tokens that a translation may have more than its source (the model's, else 50)"
    add("--max-extra-length N", more, FromZero)
    add("--batch-tokens N", "source positions in a batch (2048)", Count)
    add("--precision NAME", "float32, bfloat16, float16 or int8 (that of the model)", Precision)
    add(
        "--engine NAME",
        "what decodes: auto, numba, numpy, tensorflow, torch, jax, plain (the search that defines the "
        "result), or ctranslate2, which has its own search (auto)",
        EngineName,
    )
    again = (
        "translate again, without repetitions, what came out in a loop, as in: salad salad salad"
    )
    parser.add_argument("--break-loops", action="store_const", const=True, help=again)


def add_language_options(add: Any) -> None:
    """Add the options of a model for many languages by `adding`."""
    language = "of a model that translates between many: code of the language to translate"
    add("--source-language CODE", f"{language} from, such as eng_Latn of NLLB (the preset's)")
    add("--target-language CODE", f"{language} into (the preset's)")


def choose_backend(options: argparse.Namespace) -> None:
    """Set the backend of an engine that needs one."""
    if options.engine in BACKENDS:
        chosen = os.environ.setdefault("KERAS_BACKEND", options.engine)
        if chosen != options.engine:
            raise ValueError(
                f"--engine {options.engine} needs the backend {options.engine}, but KERAS_BACKEND is "
                f"{chosen}. Leave one of them out."
            )


SAMPLING = ("temperature", "top_k", "top_p", "seed")
# The options, by their names as arguments of `Restrictions`.
RESTRICTIONS = {
    "no_repeat_ngram_size": "no_repeat_ngram",
    "banned": "ban",
    "min_length": "min_length",
    "max_length": "max_length",
}
# Files with a line for each line of the input, by the names as arguments of `Translator.translate`.
BESIDE = {"prefixes": "prefix_file", "phrases": "phrases_file"}

# What is said of one sentence, not of a paragraph, beside the files above.
OF_SENTENCES = ("mbr", "json", "alignment", "markup", "max_line")


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add = adding(parser.add_argument_group("samples, in place of the likeliest translations"))
    add("--sample", "draw --n-best samples of each line at random")
    add("--temperature X", "what logits are divided by (1)", float)
    add("--top-k K", "draw from the K likeliest tokens (all)", Count)
    add("--top-p P", "draw from the likeliest with this probability (1)", float)
    add("--seed N", "the same seed gives the same samples (0)", int)
    add = adding(parser.add_argument_group("what translations may contain"))
    add("--ban WORD", "words that do not occur", typed_text, nargs="+")
    add("--no-repeat-ngram N", "let no N tokens occur twice", Count)
    add("--min-length N", "least length in tokens", LeastLength)
    add("--max-length N", "greatest length in tokens", Count)
    beside = "for each line of the input a line"
    begun = f"{beside}, perhaps an empty one, with which its translation begins"
    add("--prefix-file FILE", begun, Path)
    contained = f"{beside} of phrases that its translation contains, with tabs between"
    add("--phrases-file FILE", contained, Path)
    add("--glossary FILE", GLOSSARY_HELP, Path)
    add(
        "--split-sentences CODE",
        "split each line into sentences of this language, such as en, translate these and join them",
    )
    add = adding(parser.add_argument_group("several models, several candidates"))
    add(
        "--with MODEL",
        "further models with the same vocabulary: tokens score the mean of their log-probabilities",
        dest="ensemble",
        nargs="+",
    )
    add(
        "--mbr N",
        "write of N candidates, the N best or samples, the one with the best chrF on average over all",
        BeamSize,
    )


def translator_choices(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options as arguments of `Translator`."""
    from keras_attention.decoding.paragraphs import check_split_sentences
    from keras_attention.decoding.restrictions import Restrictions
    from keras_attention.decoding.sampling import Sampling

    found: dict[str, Any] = {}
    drawn = given(options, SAMPLING)
    if options.sample:
        found["sampling"] = Sampling(**drawn)
    elif drawn:
        raise ValueError(f"{flag(next(iter(drawn)))} needs --sample.")
    restricted = given(options, RESTRICTIONS.values())
    least, most = options.min_length or 0, options.max_length
    if most is not None and most < least:
        raise ValueError(
            f"--max-length must be at least --min-length, which is {least}. Received: {most}"
        )
    if restricted:
        found["restrictions"] = Restrictions(
            **{name: restricted[key] for name, key in RESTRICTIONS.items() if key in restricted}
        )
    if options.glossary is not None:
        found["glossary"] = given_glossary(options.glossary)
    if options.split_sentences is not None:
        check_split_sentences("--split-sentences", options.split_sentences)
        alone = {name: getattr(options, name) for name in (*BESIDE.values(), *OF_SENTENCES)}
        alone["n_best"] = options.n_best > 1
        for name in (name for name, value in alone.items() if value not in (None, False)):
            raise ValueError(
                f"{flag(name)} cannot be combined with --split-sentences: it is of a single "
                "sentence. Split the text before, and leave out --split-sentences."
            )
        found["split_sentences"] = options.split_sentences
    for name, path in given(options, BESIDE.values()).items():
        setattr(options, name, existing_file(path))
    return found


def given_glossary(path: Path | str) -> Any:
    """Return the glossary of a file."""
    from keras_attention.decoding.glossary import read_glossary

    return read_glossary(existing_file(path))


def refuse_together(options: argparse.Namespace, names: Sequence[str], other: str) -> None:
    """Raise a ValueError if one of the options was given beside another that excludes it."""
    for name in names:
        if getattr(options, name) not in (None, False):
            shown = "--with" if name == "ensemble" else flag(name)
            raise ValueError(f"{shown} cannot be combined with {other}.")


class LinesBeside:
    """The lines of the given files of prefixes and phrases, as those of the input are read."""

    def __init__(self, options: argparse.Namespace, files: contextlib.ExitStack):
        self._lines = {}
        for argument, name in BESIDE.items():
            path = getattr(options, name)
            if path is not None:
                file: Any = files.enter_context(open(path, "rb"))
                self._lines[argument] = flag(name), iter(lines_of(file, str(path)))

    def take(self, first: int, number: int) -> dict[str, Any]:
        """Return the entries of the next lines as arguments of `Translator.translate`."""
        found: dict[str, Any] = {}
        for argument, (option, lines) in self._lines.items():
            taken = list(itertools.islice(lines, number))
            if len(taken) < number:
                raise ValueError(f"{option} has fewer lines than the input: {first + len(taken)}.")
            found[argument] = entries_of(argument, taken)
        return found

    def check_end(self) -> None:
        """Raise a ValueError if a file has more lines than the input."""
        for option, lines in self._lines.values():
            if next(lines, None) is not None:
                raise ValueError(f"{option} has more lines than the input.")


SPREAD = ("chunk_lines", "ray", "workers")


def add_bulk_options(add: Any) -> None:
    """Add the options by `adding`."""
    add(
        "--output-dir FOLDER",
        "process the input in chunks, with one result per input file; if stopped, the same command "
        "continues",
    )
    add("--chunk-lines N", "lines in a chunk (2000)", Count)
    cluster = (
        "use a Ray cluster; without an address, one that is running or a new one on this machine"
    )
    add("--ray ADDRESS", cluster, nargs="?", const=True)
    add("--workers N", "number of Ray workers (one for each GPU or CPU)", Count)


def spread(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options as arguments of `translate_corpus` and `score_corpus`."""
    found = given(options, SPREAD)
    if options.output_dir is None and found:
        raise ValueError(f"{flag(next(iter(found)))} needs --output-dir.")
    return found


def expanded(name: str, patterns: Sequence[str]) -> list[str]:
    """Return the files that match names and patterns, in their order."""
    inputs = []
    for pattern in patterns:
        found = matching_files(pattern)
        if not found:
            raise FileNotFoundError(f"{name}: there is no file '{pattern}'.")
        inputs += found
    return inputs
