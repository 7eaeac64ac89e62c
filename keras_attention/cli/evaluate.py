"""The report on a run, also after the fact: `python -m keras_attention.cli.evaluate RUN_FOLDER`.

Translates with the first and the last of the checkpoints that the run averages and with their average,
and writes `report.txt` and the entry `"evaluation"` of `report.json` into the run's folder.

With `--precision` it writes nothing: it translates with the run's model in its own precision and in each
of those that are named, and prints what they score and how long they take. With `--beam-size` or
`--length-penalty`, on the files of a validation set, it does so for each of these settings of the search.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_attention.data.parallel_text import read_lines
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.model_search import PRECISIONS
from keras_attention.evaluation.cost import SUSTAINED_FLOPS
from keras_attention.evaluation.report import write_report
from keras_attention.evaluation.report_text import report_text
from keras_attention.recipes.compare import (
    PLAIN,
    compare_precisions,
    compare_searches,
    precisions_text,
    searches_text,
)
from keras_attention.recipes.evaluate import evaluate_run
from keras_attention.recipes.prepare import found_batches
from keras_attention.utils.run_folder import RunFolder


def main(arguments: list[str] | None = None) -> None:
    """Report on the run in a folder, on sentences from two files."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_attention.cli.evaluate", description=__doc__
    )
    add = parser.add_argument
    add("folder", type=Path, help="the run's folder")
    add("--source-file", type=Path, required=True, help="sentences to translate, one a line")
    add("--reference-file", type=Path, required=True, help="their translations, line by line")
    add("--name", help="what these sentences are; the name of the source file if not given")
    add("--devices", type=int, default=1, help="devices that trained, for the paper's formula")
    add("--device", choices=list(SUSTAINED_FLOPS), help="a GPU of the paper; else this machine")
    add("--samples", type=int, default=1000, help="resamples of the paired bootstrap")
    add(
        "--precision",
        action="append",
        choices=[PLAIN, *PRECISIONS],
        help="compare decoding in this precision, again for more; plain: the plain search in float32",
    )
    add("--beam-size", action="append", type=int, help="try this beam, again for more")
    add("--length-penalty", action="append", type=float, help="try this alpha, again for more")
    options = parser.parse_args(arguments)
    compares_searches = bool(options.beam_size or options.length_penalty)
    if compares_searches and options.precision:
        parser.error("ask for --precision, or for --beam-size and --length-penalty, not both")
    try:
        folder = RunFolder(options.folder)
        settings = folder.settings()
        sources = list(read_lines(options.source_file))
        references = list(read_lines(options.reference_file))
        tokenizer = Tokenizer.load(folder.tokenizer)
        model = keras.saving.load_model(folder.model, compile=False)
        if compares_searches:
            _compare_searches(options, settings, model, tokenizer, sources, references)
            return
        if options.precision:
            _compare_precisions(options, settings, model, tokenizer, sources, references)
            return
        # The weights of checkpoints are wanted, not the state of their optimizer.
        model.compile(optimizer=None)
        report = evaluate_run(
            folder,
            settings,
            model,
            tokenizer,
            *found_batches(settings, tokenizer, folder.store),
            sources,
            references,
            name=options.name or options.source_file.name,
            devices=options.devices,
            device=options.device,
            samples=options.samples,
        )
        write_report(report, folder.path, settings)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(report_text(report, title=folder.name), end="")


def _compare_searches(
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    model: Any,
    tokenizer: Tokenizer,
    sources: list[str],
    references: list[str],
) -> None:
    scores = compare_searches(
        model,
        tokenizer,
        sources,
        references,
        options.beam_size or [settings["beam_size"]],
        options.length_penalty or [settings["length_penalty"]],
    )
    print(searches_text(scores, len(sources)), end="")


def _compare_precisions(
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    model: Any,
    tokenizer: Tokenizer,
    sources: list[str],
    references: list[str],
) -> None:
    own = [] if PLAIN in options.precision else [model.compute_dtype]
    results = compare_precisions(
        model,
        tokenizer,
        sources,
        references,
        list(dict.fromkeys([*own, *sorted(options.precision, key=lambda name: name != PLAIN)])),
        beam_size=settings["beam_size"],
        length_penalty=settings["length_penalty"],
    )
    print(precisions_text(results, len(sources)), end="")


if __name__ == "__main__":
    main()
