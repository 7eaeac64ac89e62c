"""Translate and score whole corpora in chunks, with this process or a Ray cluster."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from keras_attention.data.presets import Loaded, load
from keras_attention.decoding.requests import entries_of
from keras_attention.decoding.result_lines import result_lines
from keras_attention.decoding.translator import Translator
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.aligning import reading_attention
from keras_attention.recipes.bulk_work import BulkWork, Chunk, TextFile
from keras_attention.recipes.scoring import log_probabilities
from keras_attention.utils.arguments import Count, FromZero, checked
from keras_attention.utils.backend import running_backend
from keras_attention.utils.places import Place, Placed
from keras_attention.utils.progress import say
from keras_attention.utils.sides import LANGUAGES, in_languages

CHUNK_LINES = 2000


def _check_ray(name: str, ray: Any) -> bool | str:
    if not isinstance(ray, bool | str):
        raise ValueError(f"`{name}` must be True, False or an address. Received: {ray!r}")
    return ray


Ray = Annotated[bool | str, _check_ray]
# Arguments of `Translator` that decide its results.
OPTIONS = (
    *("beam_size", "length_penalty", "max_extra_length", "batch_tokens", "batch_size"),
    *("precision", "engine", "sampling", "restrictions", "break_loops", *LANGUAGES),
)
# Arguments of `Translator.translate` with a line for each line of the input.
BESIDE = ("prefixes", "phrases")


def translating(
    preset: Loaded, options: Mapping[str, Any], how: Mapping[str, Any]
) -> Callable[[list[Any], Chunk], str]:
    """Load the model in a worker; return the function that translates the lines of a chunk.

    `options` are of `Translator`, and `how` has arguments of `translate_corpus`; `beside` names those with
    files, whose lines stand before each line.
    """
    translator = _translator(preset, **options)
    asking, details = reading_attention(translator, how["aligned"], how["head"])

    def work(lines: list[Any], chunk: Chunk, unusual: UnusualTexts) -> str:
        asked = {"details": details, "unusual": unusual, "unique": how["unique"]}
        if how["beside"]:
            *given, lines = (list(column) for column in zip(*lines, strict=True))
            named = zip(how["beside"], given, strict=True)
            asked |= {name: entries_of(name, column) for name, column in named}
        results = result_lines(asking, lines, chunk.first, how["n_best"], how["as_json"], **asked)
        return "".join(f"{line}\n" for line in results)

    return _telling(work, translator)


def scoring(preset: Loaded, languages: Mapping[str, str]) -> Callable[[list[Any], Chunk], str]:
    """Like `translating`, for pairs of lines: gives the log-probability of each second line."""
    translator = _translator(preset, **languages)
    parts = translator.model, translator.tokenizer

    def work(lines: list[Any], chunk: Chunk, unusual: UnusualTexts) -> str:
        sources, translations = zip(*lines, strict=True)
        values = log_probabilities(*parts, sources, translations, False, unusual)
        return "".join(f"{value:.6f}\n" for value in values)

    return _telling(work, translator)


def _translator(preset: Loaded, **options: Any) -> Translator:
    model = Transformer.from_spec(preset.spec, **preset.model_options)
    given = {"show_progress": False, **preset.known(), **options}
    return Translator(model, preset.tokenizer, **given)


def _telling(work: Callable[..., str], translator: Translator) -> Callable[[list[Any], Chunk], str]:
    """Work that says once which lines are unlike those of the training."""
    told: list[str] = []

    def telling(lines: list[Any], chunk: Chunk) -> str:
        unusual = UnusualTexts("lines", first=chunk.first + 1, longest=translator.longest_source)
        text = work(lines, chunk, unusual)
        if (message := unusual.message()) and not told:
            told.append(message)
            say(f"Input {chunk.file + 1}, from line {chunk.first + 1:,}: {message} Said once.")
        return text

    return telling


@checked
def translate_corpus(
    model: str | os.PathLike[str],
    inputs: Sequence[str | os.PathLike[str]],
    output_dir: Placed,
    *,
    n_best: Count = 1,
    as_json: bool = False,
    unique: bool | None = None,
    aligned: Literal["alignment", "markup"] | None = None,
    alignment_head: Sequence[FromZero] | None = None,
    prefixes: Sequence[str | os.PathLike[str]] | None = None,
    phrases: Sequence[str | os.PathLike[str]] | None = None,
    chunk_lines: Count = CHUNK_LINES,
    ray: Ray = False,
    workers: Count | None = None,
    show_progress: bool = True,
    **options: Any,
) -> list[Place]:
    """Translate text files with a trained model, on one machine or many. A stopped call can be continued.

    Inputs are cut into chunks of lines. The result of a chunk is written whole or not at all. A second
    call with the same arguments translates the missing chunks. At the end, the chunks of each input are
    joined, in order, into a file with its name. The translation of a chunk depends only on its lines, so
    the result does not depend on how the work was distributed. A manifest keeps the sha256 of the
    texts, the fingerprint of the model and the settings; a call with others is refused.

    With Ray, actors hold the model and get the lines from this process. Only this process reads and
    writes files: the machines of the cluster need this package, but neither a shared folder nor the model.
    If a worker or a machine dies, only the chunk that it was working on is done again, by Ray itself.

    Args:
        model: Folder of a finished run, or a model of another program; see `Translator.from_preset`.
        inputs: Text files in UTF-8, plain or packed, one sentence per line. `a.en.gz` becomes `a.en`. URLs
            such as `s3://bucket/a.en.gz` are read by fsspec.
        output_dir: A new folder, or the folder of the same translation, which is then continued; or its
            URL. Buckets have no locks: nothing there stops two processes from doing the same.
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
        ray: True for Ray's cluster, or for a new one on this machine if there is none; a string is the
            cluster's address.
        workers: Number of Ray's actors. Defaults to one for each GPU of the cluster or, without GPUs, for
            each CPU.
        show_progress: Whether to show a progress line.
        **options: Arguments of `Translator` that replace those of the model: `beam_size`,
            `length_penalty`, `max_extra_length`, `batch_tokens`, `batch_size`, `precision`, `engine`,
            `sampling`, `restrictions`, `break_loops`, `source_language`, `target_language`.

    Returns:
        The results, one for each input, as paths or URLs.

    Raises:
        ValueError: If an argument is out of range, the folder holds something else, an input changed or
            is not UTF-8 (file and line are named), or another process works in the folder.
        ImportError: If Ray or universal-pathlib is needed but not installed.

    Example:

    ```python
    translate_corpus("runs/de-en", ["news.2019.de.gz", "news.2020.de.gz"], "back-translated", ray=True)
    ```
    """
    given = {
        name: files
        for name, files in zip(BESIDE, (prefixes, phrases), strict=True)
        if files is not None
    }
    texts = _text_files(inputs, given)
    if alignment_head is not None and aligned is None:
        raise ValueError(f"`alignment_head` needs `aligned`. Received: {alignment_head=}")
    _check_workers(ray, workers)
    if unknown := sorted({*options} - {*OPTIONS}):
        raise ValueError(f"Options are {', '.join(OPTIONS)}. Received: {', '.join(unknown)}")
    preset = _sent(model)
    how: dict[str, Any] = {"n_best": n_best, "as_json": as_json, "unique": unique}
    how |= {"beside": [*given], "aligned": aligned, "head": alignment_head}
    settings = {**_made_by("translate", preset), **how, **preset.options, **options}
    settings = json.loads(json.dumps(settings, default=dataclasses.asdict))
    job = functools.partial(translating, preset, options, how)
    work = BulkWork(output_dir, texts, settings, chunk_lines)
    return work.run(job, ray, workers, show_progress)


@checked
def score_corpus(
    model: str | os.PathLike[str],
    sources: Sequence[Placed],
    translations: Sequence[Placed],
    output_dir: Placed,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
    chunk_lines: Count = CHUNK_LINES,
    ray: Ray = False,
    workers: Count | None = None,
    show_progress: bool = True,
) -> list[Place]:
    """Score how probable a trained model finds given translations, in chunks as `translate_corpus` does.

    Each line of the result is the natural logarithm of the probability of a line of `translations`,
    given the same line of `sources`: the sum over its tokens, end token included.

    Args:
        model: As in `translate_corpus`.
        sources: Text files, plain or packed, one sentence per line; paths, or URLs that fsspec reads.
        translations: As many files with as many lines. `a.en.gz` becomes `a.en`.
        output_dir: A new folder, or the folder of the same work, which is then continued.
        source_language, target_language: As of `Translator`. Default to None.
        chunk_lines, ray, workers, show_progress: As in `translate_corpus`.

    Returns:
        The results, one for each pair of files.

    Raises:
        ValueError: As `translate_corpus`, and if two files of a pair differ in their number of lines.

    Example:

    ```python
    score_corpus("runs/de-en", ["crawl.de.gz"], ["crawl.en.gz"], "scores", ray=True)
    ```
    """
    if len(sources) != len(translations):
        raise ValueError(
            "Every file of `sources` needs one of `translations`. "
            f"Received: {len(sources)} and {len(translations)} files"
        )
    pairs = [TextFile(*pair) for pair in zip(sources, translations, strict=True)]
    _check_workers(ray, workers)
    preset = _sent(model)
    both = zip(LANGUAGES, (source_language, target_language), strict=True)
    languages = {name: code for name, code in both if code is not None}
    in_languages(preset.tokenizer, **languages)
    work = BulkWork(output_dir, pairs, {**_made_by("score", preset), **languages}, chunk_lines)
    job = functools.partial(scoring, preset, languages)
    return work.run(job, ray, workers, show_progress, "scoring")


def _text_files(inputs: Sequence[Any], beside: Mapping[str, Sequence[Any]]) -> list[TextFile]:
    """Return the inputs, the lines of whose files beside stand before their own."""
    for name, files in beside.items():
        if len(files) != len(inputs):
            raise ValueError(
                f"`{name}` must have a file for each of `inputs`. Received: {len(files)} for {len(inputs)}"
            )
    return [TextFile(*files) for files in zip(*beside.values(), inputs, strict=True)]


def _check_workers(ray: bool | str, workers: int | None) -> None:
    if workers is not None and not ray:
        raise ValueError(f"`workers` needs `ray`. Received: workers={workers}")


def _made_by(work: str, preset: Loaded) -> dict[str, Any]:
    """Return settings that decide results; backends differ in the last bits."""
    return {"work": work, "backend": running_backend(), "model": preset.fingerprint()}


def _sent(model: str | os.PathLike[str]) -> Loaded:
    """Return a model with what can be sent to other machines: of its card, the head that aligns."""
    preset = load(model)
    card = {name: preset.card[name] for name in ("alignment",) if name in preset.card}
    return preset._replace(
        options={**preset.options}, model_options={**preset.model_options}, card=card
    )
