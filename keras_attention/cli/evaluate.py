"""`keras-attention evaluate MODEL`: a report on a model, or a comparison of models."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.decoding_options import NAMES, add_search_options, choose_backend
from keras_attention.cli.models import (
    MODEL_HELP,
    check_model,
    is_run,
    keras_translator,
    languages_for,
    name_of,
    preset_of,
)
from keras_attention.cli.options import Parser, adding, flag, given
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import typed_text
from keras_attention.data.model_card import languages_of
from keras_attention.data.parallel_text import FilePairs
from keras_attention.data.text_files import existing_file, language_of_file
from keras_attention.interop.hub import is_handle
from keras_attention.utils.arguments import Count
from keras_attention.utils.files import atomic_file, check_destination, plain_json
from keras_attention.utils.languages import base_language
from keras_attention.utils.lazily import check_moses
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder
from keras_attention.utils.sides import LANGUAGES

DESCRIPTION = """Score a model on your own sentences, or compare several models.

For one run, it translates with the first and the last of the checkpoints that the run averages, and with
their average. It prints the report and writes nothing into the run's folder. A model of another program has
no checkpoints: it is scored as it is.

For several models, it prints their scores and whether each differs from the first by more than chance, by
sacreBLEU's paired tests (their seed is SACREBLEU_SEED).
Runs need no files: then it compares the translations that they have kept of their test set, which must be
the same.
"""

EXAMPLE = """
examples:
  keras-attention evaluate runs/demo --source-file test.en --reference-file test.de
  keras-attention evaluate runs/one runs/other
  keras-attention evaluate hf://Helsinki-NLP/opus-mt-en-de runs/tuned --source-file a.en --reference-file a.de
"""


def main(arguments: Sequence[str], program: str = "keras-attention evaluate") -> None:
    """Report on one model on sentences from two files, or compare several models."""
    options = _parser(program).parse_args(arguments)
    named = given(options, LANGUAGES)
    if options.output is not None:
        check_destination(options.output)
    if (options.source_file is None) != (options.reference_file is None):
        raise ValueError("--source-file and --reference-file belong together.")
    for name, file in given(options, ("source_file", "reference_file")).items():
        setattr(options, name, existing_file(file))
    model = options.model[0]
    is_own = len(options.model) == 1 and is_run(model)
    if not is_own:
        _check_models(options)
    if options.source_file is not None:
        for one in options.model:
            check_model(one, **languages_for(one, named))
    elif len(options.model) == 1:
        own = f" (Its report on its own test set is '{RunFolder(model).report_text}'.)"
        raise ValueError(
            f"One model needs --source-file and --reference-file.{own if is_own else ''}"
        )
    search = given(options, NAMES)
    if search and options.source_file is None:
        raise ValueError(f"{flag(next(iter(search)))} needs --source-file: nothing is translated.")
    choose_backend(options)
    check_moses()
    start_backend()
    if is_own:
        _evaluate_run(options, model, search)
    else:
        _compare_models(options, search, named)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(prog=program, description=DESCRIPTION, epilog=EXAMPLE)
    add = adding(parser)
    add("MODEL", f"{MODEL_HELP}; several are compared with the first", nargs="+")
    add("--source-file FILE", "sentences to translate, one per line", Path)
    add("--reference-file FILE", "their reference translations, line by line", Path)
    add("--output FILE", "a new file for all figures of the report, as JSON (none)", Path)
    name = "name of these sentences in the report (the name of the source file)"
    add("--name TEXT", name, typed_text)
    language = (
        "language code of the references, if neither a MODEL nor the file's ending says it; a MODEL that "
        "translates between many is told it"
    )
    add("--target-language CODE", language, typed_text)
    source = "the language that such a MODEL translates from (the preset's)"
    add("--source-language CODE", source, typed_text)
    add(
        "--ter",
        "score TER, too: word edits and moves for 100 words; slow where translations are bad",
    )
    add("--samples N", "samples of the paired tests (1000)", Count, default=1000)
    add_search_options(parser)
    return parser


def _check_models(options: argparse.Namespace) -> None:
    """Refuse models that cannot be compared, or options that are for one run."""
    models = options.model
    places = {model if is_handle(model) else str(Path(model).resolve()) for model in models}
    if len(places) < len(models):
        raise ValueError("The same model is given twice: there is nothing to compare.")
    languages = {}
    for model in models:
        if is_run(model):
            languages[model] = tuple(RunFolder(model).settings(("languages",))["languages"])
        elif options.source_file is None and len(models) > 1:
            raise ValueError(
                f"'{model}' is no run, so it has kept no translations. Give --source-file and "
                "--reference-file."
            )
        elif options.source_file is not None:
            check_model(model)
            if pair := languages_of(preset_of(model).card):
                languages[model] = pair
    first, *others = languages or [""]
    for other in others:
        if [*map(base_language, languages[other])] != [*map(base_language, languages[first])]:
            pairs = [" to ".join(languages[model]) for model in (first, other)]
            raise ValueError(
                f"'{name_of(first)}' translates {pairs[0]}, '{name_of(other)}' {pairs[1]}: they cannot "
                "be compared."
            )
    ending = language_of_file(options.reference_file) if options.reference_file else None
    known = languages[first][1] if languages else options.target_language or ending
    if known and base_language(options.target_language or known) != base_language(known):
        raise ValueError(
            f"'{first}' translates into {known}. Received: --target-language {options.target_language}"
        )
    if known is None and options.source_file is not None:
        raise ValueError(
            f"Neither the model nor the ending of '{options.reference_file}' says the language, which BLEU "
            "needs: give --target-language, such as de."
        )
    options.target_language = known


def _compare_models(
    options: argparse.Namespace, search: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Scores of several models and their significance, or the scores of one of another program."""
    from keras_attention.decoding.translator import Translator
    from keras_attention.evaluation.report import Sentences, own_translations, runs_report

    names = [name_of(model) for model in options.model]
    names = names if len({*names}) == len(names) else options.model
    models = dict(zip(names, options.model, strict=True))
    decoding: dict[str, Any] = {}
    translations: dict[str, list[str]] = {}
    sources: Sequence[str] = ()
    if options.source_file is None:
        runs = {name: RunFolder(model) for name, model in models.items()}
        translations, references = own_translations(runs)
        name = "the runs' own test set"
    else:
        sources, references = _given_lines(options)
        name = options.source_file.name
        for title, model in models.items():
            translator = keras_translator(model, **search, **languages_for(model, named))
            translations[title] = translator(sources)
            chosen = {**check_model(model), **search}
            keys = dict.fromkeys((*SEARCH_SETTINGS, *search))
            settings = (f"{key} {chosen.get(key, getattr(Translator, key))}" for key in keys)
            decoding[f"{title}:"] = " ".join(settings)
    name = options.name or name
    text = Sentences(sources, references, name, options.target_language, ter=options.ter)
    report = runs_report(translations, text, decoding=decoding, samples=options.samples)
    _show(report, " and ".join(models), options.output)


def _evaluate_run(options: argparse.Namespace, model: str, search: Mapping[str, Any]) -> None:
    from keras_attention.evaluation.report import Sentences
    from keras_attention.recipes.finished_run import FinishedRun

    sources, references = _given_lines(options)
    run = FinishedRun(model)
    language = run.settings["languages"][1]
    if options.target_language not in (None, language):
        raise ValueError(
            f"'{model}' translates into {language}. Received: --target-language "
            f"{options.target_language}"
        )
    name = options.name or options.source_file.name
    text = Sentences(sources, references, name, language, ter=options.ter)
    report = run.evaluation(text, samples=options.samples, search=search)
    _show(report, run.folder.name, options.output)


def _given_lines(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    pairs = list(FilePairs(options.source_file, options.reference_file))
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def _show(report: Mapping[str, Any], title: str, output: Path | None) -> None:
    """Print a report, and write its figures to the file that was asked for."""
    from keras_attention.evaluation.report_text import report_text

    # First: whatever becomes of the file, this is not lost.
    print(report_text(report, title=title), end="", flush=True)
    if output is not None:
        with atomic_file(output, is_new=True) as file:
            figures = {key: value for key, value in report.items() if key != "translations"}
            file.write(plain_json(figures))
