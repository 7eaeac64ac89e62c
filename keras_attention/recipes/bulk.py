"""Translate and score whole corpora: in chunks, by one process, an array of jobs, or a cluster of Ray."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_attention.decoding.hypotheses import check_search_options
from keras_attention.decoding.result_lines import result_lines
from keras_attention.decoding.translator import Translator
from keras_attention.recipes.bulk_folder import BulkFolder, TextFile
from keras_attention.recipes.bulk_work import Work, check_spread, packed, run_chunks, unpacked
from keras_attention.recipes.scoring import log_probabilities
from keras_attention.utils.checks import check_boolean, check_integer, check_iterable, check_path
from keras_attention.utils.files import sha256_of
from keras_attention.utils.places import Place, check_place
from keras_attention.utils.run_folder import RunFolder

CHUNK_LINES = 2000
# Arguments of `Translator` that decide its results.
OPTIONS = (
    "beam_size",
    "length_penalty",
    "max_extra_length",
    "batch_tokens",
    "batch_size",
    "precision",
    "engine",
)


@dataclasses.dataclass(frozen=True)
class TranslateChunk:
    """What a worker does; called, it loads the model and returns the function for one chunk.

    Attributes:
        files: Name -> content of the files of a run that a translator needs.
        options: Arguments of `Translator`.
        n_best: How many translations of a line.
        as_json: Whether a line is a JSON object.
    """

    files: dict[str, bytes]
    options: dict[str, Any]
    n_best: int
    as_json: bool

    def __call__(self) -> Work:
        with unpacked(self.files) as folder:
            translator = Translator.from_run(folder, show_progress=False, **self.options)

        def work(lines: list[Any], chunk: Any) -> str:
            results = result_lines(translator, lines, chunk.first, self.n_best, self.as_json)
            return "".join(f"{line}\n" for line in results)

        return work


@dataclasses.dataclass(frozen=True)
class ScoreChunk:
    """As `TranslateChunk`, for pairs of lines: the log-probability of each second one.

    Attributes:
        files: Name -> content of the files of a run.
    """

    files: dict[str, bytes]

    def __call__(self) -> Work:
        with unpacked(self.files) as folder:
            translator = Translator.from_run(folder, show_progress=False)
        model, tokenizer = translator.model, translator.tokenizer

        def work(lines: list[Any], chunk: Any) -> str:
            sources, translations = zip(*lines, strict=True)
            values = log_probabilities(model, tokenizer, sources, translations, False)
            return "".join(f"{value:.6f}\n" for value in values)

        return work


def translate_corpus(
    run: str | os.PathLike[str],
    inputs: Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    *,
    n_best: int = 1,
    as_json: bool = False,
    chunk_lines: int = CHUNK_LINES,
    share: tuple[int, int] = (1, 1),
    ray: bool | str = False,
    workers: int | None = None,
    show_progress: bool = True,
    **options: Any,
) -> list[Place]:
    """Translate text files with a finished run, on one machine or many; killed, it goes on.

    Inputs are cut into chunks of lines. The result of a chunk is written whole or not at all, and a
    second call with the same arguments translates what is missing. At the end the chunks of an input
    are joined, in order, under its name. As a chunk's translation depends on its lines alone, the result
    is the same whatever translated it. A manifest keeps the sha256 of the inputs, the fingerprint of
    the model and the settings; others are refused.

    With Ray, actors hold the model and get the lines from this process, which alone reads and writes
    files: the machines of the cluster need this package, but neither a shared folder nor the run. A
    worker or a machine that dies costs the chunks that it was at.

    Args:
        run: Folder of a finished run.
        inputs: Text files in UTF-8, plain or gzip, a sentence a line. `a.en.gz` becomes `a.en`. URLs such
            as `s3://bucket/a.en.gz` are read by fsspec.
        output_dir: A new folder, or that of the same translation, which then goes on; or its URL. A
            bucket has no locks: there, nothing keeps two processes from taking the same share.
        n_best: So many translations of a line, as Moses writes them: `LINE ||| TEXT ||| SCORE`; 1 for
            the text alone.
        as_json: A JSON object for each line, with all n best and their scores.
        chunk_lines: Lines of a chunk.
        share: `(k, n)`, from 1: translate the k-th of n shares alone, for arrays of jobs. The last
            process joins the parts; a call without `share` translates what is missing, and joins.
        ray: True for Ray's cluster, or one on this machine if there is none; text for the cluster's
            address.
        workers: Actors of Ray. Defaults to one for each GPU of the cluster or, if it has none, each CPU.
        show_progress: Whether a progress line is shown.
        **options: Arguments of `Translator`, in place of the run's: `beam_size`, `length_penalty`,
            `max_extra_length`, `batch_tokens`, `batch_size`, `precision`, `engine`.

    Returns:
        The results, one for each input, paths or URLs; none while other shares are missing.

    Raises:
        ValueError: Arguments out of range, a folder that holds something else, an input that changed or
            is not UTF-8 (named by file and line), or another process at the same share.
        ImportError: If Ray or fsspec is wanted and not installed.

    Example:

    ```python
    translate_corpus("runs/de-en", ["news.2019.de.gz", "news.2020.de.gz"], "back-translated", ray=True)
    ```
    """
    check_path("run", run)
    check_place("output_dir", output_dir)
    sources = [TextFile(file) for file in check_iterable("inputs", inputs)]
    check_integer("n_best", n_best, 1)
    check_boolean("as_json", as_json)
    check_integer("chunk_lines", chunk_lines, 1)
    check_spread(share, ray, workers, show_progress)
    if unknown := sorted({*options} - {*OPTIONS}):
        raise ValueError(f"Options are {', '.join(OPTIONS)}. Received: {', '.join(unknown)}")
    files, model = _run_files(RunFolder(run))
    chosen = _search_options(RunFolder(run), options)
    check_integer("n_best", n_best, 1, chosen["beam_size"])
    known = {**chosen, "n_best": n_best, "as_json": as_json, "model": model}
    folder = BulkFolder(output_dir, sources, _settings("translate", known), chunk_lines)
    job = TranslateChunk(files, chosen, n_best, as_json)
    return run_chunks(folder, job, share, ray, workers, show_progress)


def score_corpus(
    run: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str]],
    translations: Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    *,
    chunk_lines: int = CHUNK_LINES,
    share: tuple[int, int] = (1, 1),
    ray: bool | str = False,
    workers: int | None = None,
    show_progress: bool = True,
) -> list[Place]:
    """How probable a finished run finds given translations, by the same road as `translate_corpus`.

    A line of the result is the natural logarithm of the probability of a line of `translations`, given
    that of `sources`: the sum over its tokens, end token included.

    Args:
        run: Folder of a finished run.
        sources: Text files, plain or gzip, a sentence a line; paths, or URLs for fsspec.
        translations: As many files with as many lines. `a.en.gz` becomes `a.en`.
        output_dir: A new folder, or that of the same work, which then goes on.
        chunk_lines, share, ray, workers, show_progress: As in `translate_corpus`.

    Returns:
        The results, one for each pair of files; none while other shares are missing.

    Raises:
        ValueError: As `translate_corpus`; and files that do not belong together by their number of lines.

    Example:

    ```python
    score_corpus("runs/de-en", ["crawl.de.gz"], ["crawl.en.gz"], "scores", share=(17, 400))
    ```
    """
    check_path("run", run)
    check_place("output_dir", output_dir)
    sides = [
        [check_place(name, file) for file in check_iterable(name, files)]
        for name, files in (("sources", sources), ("translations", translations))
    ]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            "Every file of `sources` needs one of `translations`. "
            f"Received: {len(sides[0])} and {len(sides[1])} files"
        )
    pairs = [TextFile(*pair) for pair in zip(*sides, strict=True)]
    check_integer("chunk_lines", chunk_lines, 1)
    check_spread(share, ray, workers, show_progress)
    files, model = _run_files(RunFolder(run))
    folder = BulkFolder(output_dir, pairs, _settings("score", {"model": model}), chunk_lines)
    return run_chunks(folder, ScoreChunk(files), share, ray, workers, show_progress, "scoring")


def _search_options(run: RunFolder, given: dict[str, Any]) -> dict[str, Any]:
    """What decides the translations: what is given, else what the run says, else what is usual."""
    defaults = {field.name: field.default for field in dataclasses.fields(Translator)}
    # Of the run's settings, others have names of their own for other things.
    known = {**defaults, **{name: run.settings().get(name, defaults[name]) for name in OPTIONS[:2]}}
    chosen = {name: given.get(name, known[name]) for name in OPTIONS}
    check_search_options(chosen["beam_size"], chosen["length_penalty"])
    return chosen


def _settings(work: str, known: dict[str, Any]) -> dict[str, Any]:
    """What the manifest keeps; backends differ in the last bits."""
    return {"work": work, "backend": keras.backend.backend(), **known}


def _run_files(run: RunFolder) -> tuple[dict[str, bytes], str]:
    """The files of a run that a translator needs, and the fingerprint of what decides results."""
    run.settings()
    paths = [run.trained_model(), *tokenizer_files(run.tokenizer)]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return packed([*paths, run.config], run.path), digest.hexdigest()


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a saved tokenizer."""
    return sorted(path for path in folder.iterdir() if path.is_file())
