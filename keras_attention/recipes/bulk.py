"""Translate and score whole corpora in chunks, with one process, a job array or a Ray cluster."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.presets import Preset, is_run, read_preset
from keras_attention.decoding.hypotheses import check_search_options
from keras_attention.decoding.pretrained import known_of
from keras_attention.decoding.requests import entries_of
from keras_attention.decoding.restrictions import check_restrictions
from keras_attention.decoding.result_lines import result_lines
from keras_attention.decoding.sampling import MOST_SAMPLES, check_sampling
from keras_attention.decoding.translator import Translator
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.bulk_folder import BulkFolder, TextFile
from keras_attention.recipes.bulk_work import Work, check_spread, packed, run_chunks, unpacked
from keras_attention.recipes.marked import ALIGNED, reading_attention
from keras_attention.recipes.scoring import log_probabilities
from keras_attention.utils.backend import running_backend
from keras_attention.utils.checks import (
    check_boolean,
    check_choice,
    check_integer,
    check_iterable,
    check_path,
)
from keras_attention.utils.files import sha256_of
from keras_attention.utils.places import Place, check_place
from keras_attention.utils.progress import say
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder

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
    "sampling",
    "restrictions",
)
# Arguments of `Translator.translate` with a line for each line of the input.
BESIDE = ("prefixes", "phrases")


@dataclasses.dataclass(frozen=True)
class TranslateChunk:
    """The job of a worker. When called, it loads the model and returns the function for one chunk.

    The model is the files of a run that a translator needs, by name, or another program's.

    Attributes:
        beside: The arguments of `BESIDE` whose lines stand before each source.
        head: The head that aligns, if it is known.
    """

    model: dict[str, bytes] | Preset
    options: dict[str, Any]
    n_best: int
    as_json: bool
    unique: bool
    beside: tuple[str, ...] = ()
    aligned: str | None = None
    head: Sequence[int] | None = None

    def settings(self) -> dict[str, Any]:
        """Return what decides the results but for the model, for the manifest."""
        known = {**self.options, "n_best": self.n_best, "as_json": self.as_json}
        if self.n_best > 1:  # One translation is the same either way.
            known["unique"] = self.unique
        # What was not asked for is not named, as in folders of older versions.
        newer: dict[str, Any] = {"aligned": self.aligned, "head": self.head, "beside": self.beside}
        for name in ("sampling", "restrictions"):
            newer[name] = dataclasses.asdict(value) if (value := known.pop(name)) else None
        asked = {name: value for name, value in newer.items() if value}
        # As it is read again.
        return {**known, **json.loads(json.dumps(asked))}

    def __call__(self) -> Work:
        translator = _translator(self.model, **self.options)
        asking, details = reading_attention(translator, self.aligned, self.head)

        def work(lines: list[Any], chunk: Any, unusual: UnusualTexts) -> str:
            asked = {"details": details}
            if self.beside:
                *given, lines = (list(column) for column in zip(*lines, strict=True))
                named = zip(self.beside, given, strict=True)
                asked |= {name: entries_of(name, column) for name, column in named}
            how = (self.n_best, self.as_json, self.unique, unusual)
            results = result_lines(asking, lines, chunk.first, *how, **asked)
            return "".join(f"{line}\n" for line in results)

        return _telling(work, translator)


@dataclasses.dataclass(frozen=True)
class ScoreChunk:
    """Like `TranslateChunk`, for pairs of lines: gives the log-probability of each second line."""

    model: dict[str, bytes] | Preset

    def __call__(self) -> Work:
        translator = _translator(self.model)
        parts = translator.model, translator.tokenizer

        def work(lines: list[Any], chunk: Any, unusual: UnusualTexts) -> str:
            sources, translations = zip(*lines, strict=True)
            values = log_probabilities(*parts, sources, translations, False, unusual)
            return "".join(f"{value:.6f}\n" for value in values)

        return _telling(work, translator)


def _translator(model: dict[str, bytes] | Preset, **options: Any) -> Translator:
    """Return a translator of a Keras model."""
    if isinstance(model, Preset):
        keras_model = Transformer.from_spec(model.spec, **model.model_options)
        given = {"show_progress": False, **known_of(model), **options}
        return Translator(keras_model, model.tokenizer, **given)
    with unpacked(model) as folder:
        return Translator.from_run(folder, show_progress=False, **options)


def _telling(work: Callable[..., str], translator: Translator) -> Work:
    """Work that says once which lines are unlike those of the training."""
    told: list[str] = []

    def telling(lines: list[Any], chunk: Any) -> str:
        unusual = UnusualTexts("lines", first=chunk.first + 1, longest=translator.longest_source)
        text = work(lines, chunk, unusual)
        if (message := unusual.message()) and not told:
            told.append(message)
            say(f"Input {chunk.file + 1}, from line {chunk.first + 1:,}: {message} Said once.")
        return text

    return telling


def translate_corpus(
    model: str | os.PathLike[str],
    inputs: Sequence[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str],
    *,
    n_best: int = 1,
    as_json: bool = False,
    unique: bool | None = None,
    aligned: str | None = None,
    alignment_head: Sequence[int] | None = None,
    prefixes: Sequence[str | os.PathLike[str]] | None = None,
    phrases: Sequence[str | os.PathLike[str]] | None = None,
    chunk_lines: int = CHUNK_LINES,
    share: tuple[int, int] = (1, 1),
    ray: bool | str = False,
    workers: int | None = None,
    show_progress: bool = True,
    **options: Any,
) -> list[Place]:
    """Translate text files with a trained model, on one machine or many. A stopped call can be continued.

    Inputs are cut into chunks of lines. The result of a chunk is written whole or not at all. A second
    call with the same arguments translates the missing chunks. At the end, the chunks of each input are
    joined, in order, into a file with its name. The translation of a chunk depends only on its lines, so
    the result does not depend on how the work was distributed. A manifest keeps the sha256 of the
    inputs, the fingerprint of the model and the settings; a call with others is refused.

    With Ray, actors hold the model and get the lines from this process. Only this process reads and
    writes files: the machines of the cluster need this package, but neither a shared folder nor the model.
    If a worker or a machine dies, only the chunks that it was working on are lost.

    Args:
        model: Folder of a finished run, or a model of another program; see `Translator.from_preset`.
        inputs: Text files in UTF-8, plain or gzip, one sentence per line. `a.en.gz` becomes `a.en`. URLs
            such as `s3://bucket/a.en.gz` are read by fsspec.
        output_dir: A new folder, or the folder of the same translation, which is then continued; or its
            URL. Buckets have no locks: nothing there stops two processes from taking the same share.
        n_best: Number of translations per line, written as by Moses: `LINE ||| TEXT ||| SCORE`; with 1,
            only the text.
        as_json: Whether to write a JSON object per line, with all n best and their scores.
        unique: Whether the n best differ in their text; there may be fewer then. Defaults to True, for
            samples to False.
        aligned: `"alignment"` to write word alignments behind each translation, `"markup"` to carry tags and
            placeholders over by them. Defaults to None, neither.
        alignment_head: The head that aligns, as its layer and its number, from 0. Defaults to the one that is
            known of the model, else to the mean of all.
        prefixes: For each input a file that has, for each of its lines, that with which the translation
            begins. Defaults to none.
        phrases: For each input a file with the phrases that each translation contains, with tabs between.
            Defaults to none.
        chunk_lines: Lines in a chunk.
        share: `(k, n)`, from 1: translate only the k-th of n shares, for job arrays. The last process
            joins the parts. A call without `share` translates what is missing, and joins.
        ray: True for Ray's cluster, or for a new one on this machine if there is none; a string is the
            cluster's address.
        workers: Number of Ray's actors. Defaults to one for each GPU of the cluster or, without GPUs, for
            each CPU.
        show_progress: Whether to show a progress line.
        **options: Arguments of `Translator` that replace those of the model: `beam_size`,
            `length_penalty`, `max_extra_length`, `batch_tokens`, `batch_size`, `precision`, `engine`,
            `sampling`, `restrictions`.

    Returns:
        The results, one for each input, as paths or URLs; an empty list while other shares are missing.

    Raises:
        ValueError: If an argument is out of range, the folder holds something else, an input changed or
            is not UTF-8 (file and line are named), or another process works on the same share.
        ImportError: If Ray or universal-pathlib is needed but not installed.

    Example:

    ```python
    translate_corpus("runs/de-en", ["news.2019.de.gz", "news.2020.de.gz"], "back-translated", ray=True)
    ```
    """
    check_path("model", model)
    check_place("output_dir", output_dir)
    given = {
        name: [*check_iterable(name, files)]
        for name, files in zip(BESIDE, (prefixes, phrases), strict=True)
        if files is not None
    }
    sources = _text_files([*check_iterable("inputs", inputs)], given)
    check_integer("n_best", n_best, 1)
    check_boolean("as_json", as_json)
    if unique is not None:
        check_boolean("unique", unique)
    if aligned is not None:
        check_choice("aligned", aligned, ALIGNED)
    if alignment_head is not None:
        alignment_head = [
            check_integer("alignment_head", number, 0)
            for number in check_iterable("alignment_head", alignment_head)
        ]
        if aligned is None or len(alignment_head) != 2:
            raise ValueError(
                "`alignment_head` must be a layer and a head, and needs `aligned`. Received: alignment_head="
                f"{alignment_head!r}, aligned={aligned!r}"
            )
    check_integer("chunk_lines", chunk_lines, 1)
    check_spread(share, ray, workers, show_progress)
    if unknown := sorted({*options} - {*OPTIONS}):
        raise ValueError(f"Options are {', '.join(OPTIONS)}. Received: {', '.join(unknown)}")
    loaded, fingerprint, search = _loaded(model)
    chosen = _search_options(search, options)
    is_sampled = chosen["sampling"] is not None
    check_integer("n_best", n_best, 1, MOST_SAMPLES if is_sampled else chosen["beam_size"])
    is_unique = not is_sampled if unique is None else unique
    job = TranslateChunk(
        loaded, chosen, n_best, as_json, is_unique, tuple(given), aligned, alignment_head
    )
    # The backend, since backends differ in the last bits.
    made_by = {"work": "translate", "backend": running_backend(), "model": fingerprint}
    folder = BulkFolder(output_dir, sources, {**made_by, **job.settings()}, chunk_lines)
    return run_chunks(folder, job, share, ray, workers, show_progress)


def score_corpus(
    model: str | os.PathLike[str],
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
    """Score how probable a trained model finds given translations, in chunks as `translate_corpus` does.

    Each line of the result is the natural logarithm of the probability of a line of `translations`,
    given the same line of `sources`: the sum over its tokens, end token included.

    Args:
        model: As in `translate_corpus`.
        sources: Text files, plain or gzip, one sentence per line; paths, or URLs that fsspec reads.
        translations: As many files with as many lines. `a.en.gz` becomes `a.en`.
        output_dir: A new folder, or the folder of the same work, which is then continued.
        chunk_lines, share, ray, workers, show_progress: As in `translate_corpus`.

    Returns:
        The results, one for each pair of files; an empty list while other shares are missing.

    Raises:
        ValueError: As `translate_corpus`, and if two files of a pair differ in their number of lines.

    Example:

    ```python
    score_corpus("runs/de-en", ["crawl.de.gz"], ["crawl.en.gz"], "scores", share=(17, 400))
    ```
    """
    check_path("model", model)
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
    loaded, fingerprint, _ = _loaded(model)
    made_by = {"work": "score", "backend": running_backend(), "model": fingerprint}
    folder = BulkFolder(output_dir, pairs, made_by, chunk_lines)
    return run_chunks(folder, ScoreChunk(loaded), share, ray, workers, show_progress, "scoring")


def _text_files(inputs: Sequence[Any], beside: Mapping[str, Sequence[Any]]) -> list[TextFile]:
    """Return the inputs, the lines of whose files beside stand before their own."""
    for name, files in beside.items():
        for file in files:
            check_path(name, file)
        if len(files) != len(inputs):
            raise ValueError(
                f"`{name}` must have a file for each of `inputs`. Received: {len(files)} for {len(inputs)}"
            )
    return [TextFile(*files) for files in zip(*beside.values(), inputs, strict=True)]


def _search_options(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search options: those given, else the model's, else the defaults of `Translator`."""
    defaults = {field.name: field.default for field in dataclasses.fields(Translator)}
    known = {**defaults, **own}
    chosen = {name: given.get(name, known[name]) for name in OPTIONS}
    check_search_options(chosen["beam_size"], chosen["length_penalty"])
    check_sampling(chosen["sampling"])
    chosen["restrictions"] = check_restrictions(chosen["restrictions"])
    return chosen


def _loaded(model: str | os.PathLike[str]) -> tuple[dict[str, bytes] | Preset, str, dict[str, Any]]:
    """Return what a worker needs of a model, the fingerprint of what decides results, and search options."""
    if not is_run(model):
        preset = read_preset(model)
        # Of the card the head that aligns, and what can be sent to other machines.
        card = {name: preset.card[name] for name in ("alignment",) if name in preset.card}
        sent = preset._replace(options={}, model_options={**preset.model_options}, card=card)
        return sent, preset.fingerprint(), {**preset.options}
    run = RunFolder(model)
    settings = run.settings()
    # The run's other settings with these names mean something else.
    search = {name: settings[name] for name in SEARCH_SETTINGS if name in settings}
    paths = [run.trained_model(), *tokenizer_files(run.tokenizer)]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    known = [path for path in (run.config, run.report) if path.exists()]
    return packed([*paths, *known], run.path), digest.hexdigest(), search


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files of a saved tokenizer."""
    return sorted(path for path in folder.iterdir() if path.is_file())
