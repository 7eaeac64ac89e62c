"""`keras-attention evaluate RUN`: a report on a finished run, and comparisons of search settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.options import Parser
from keras_attention.cli.quiet import start_backend
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder

DESCRIPTION = """Score a run on your own sentences, and write a report.

Translates with the first and the last of the checkpoints that the run averages, and with their average.
Writes report.txt and the entry "evaluation" of report.json into the run's folder.

With --try-precision, it writes nothing. It translates with the run's model in its own precision and in each
precision that you name, and prints scores and times. With --try-beam-size or --try-length-penalty, it does
the same for each of these search settings; use the files of a validation set for this.
"""

EXAMPLE = """
examples:
  keras-attention evaluate runs/demo --source-file test.en --reference-file test.de
  keras-attention evaluate runs/demo --source-file val.en --reference-file val.de --try-beam-size 8
"""


def main(arguments: Sequence[str], program: str = "keras-attention evaluate") -> None:
    """Report on the run in a folder, on sentences from two files."""
    parser = _parser(program)
    options = parser.parse_args(arguments)
    tries_searches = bool(options.beam_size or options.length_penalty)
    if tries_searches and options.precision:
        raise ValueError(
            "Give --try-precision, or --try-beam-size and --try-length-penalty, not both."
        )
    run = RunFolder(options.run)
    settings = run.settings((*SEARCH_SETTINGS, "averaged_checkpoints", "dtype", "languages"))
    for file in (options.source_file, options.reference_file):
        if not file.is_file():
            raise FileNotFoundError(f"There is no file '{file}'.")
    start_backend()
    import keras

    from keras_attention.data.parallel_text import read_lines
    from keras_attention.data.tokenizer import Tokenizer

    sources = list(read_lines(options.source_file))
    references = list(read_lines(options.reference_file))
    tokenizer = Tokenizer.load(run.tokenizer)
    model = keras.saving.load_model(run.trained_model(), compile=False)
    if tries_searches:
        _compare_searches(options, settings, model, tokenizer, sources, references)
    elif options.precision:
        _compare_precisions(options, settings, model, tokenizer, sources, references)
    else:
        _report(options, run, settings, model, tokenizer, sources, references)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the run's folder")
    file: dict[str, Any] = {"type": Path, "required": True, "metavar": "FILE"}
    add("--source-file", **file, help="sentences to translate, one per line")
    add("--reference-file", **file, help="their reference translations, line by line")
    name = "name of these sentences in the report (the name of the source file)"
    add("--name", metavar="TEXT", help=name)
    samples = "resamples of the paired bootstrap (1000)"
    add("--samples", type=int, default=1000, metavar="N", help=samples)
    cost = parser.add_argument_group("cost, by the paper's formula")
    add_cost = cost.add_argument
    add_cost("--devices", type=int, default=1, metavar="N", help="how many devices trained (1)")
    gpu = "a GPU of the paper: K80, K40, M40 or P100 (this machine's speed)"
    add_cost("--gpu", metavar="NAME", help=gpu)
    # The suppressed options are the names of earlier versions.
    add_cost("--device", dest="gpu", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    tries = parser.add_argument_group(
        "comparisons, which write nothing; each option can be repeated"
    )
    precisions = "float32, bfloat16, float16, int8, or plain: the plain search in float32"
    for name, kind, metavar, text in (
        ("precision", str, "NAME", precisions),
        ("beam-size", int, "N", "a beam size"),
        ("length-penalty", float, "X", "a length penalty, the paper's alpha"),
    ):
        more: dict[str, Any] = {
            "dest": name.replace("-", "_"),
            "action": "append",
            "type": kind,
            "metavar": metavar,
        }
        tries.add_argument(f"--try-{name}", help=text, **more)
        tries.add_argument(f"--{name}", help=argparse.SUPPRESS, **more)
    return parser


def _report(
    options: argparse.Namespace,
    run: RunFolder,
    settings: Mapping[str, Any],
    model: Any,
    tokenizer: Any,
    sources: list[str],
    references: list[str],
) -> None:
    from keras_attention.evaluation.cost import SUSTAINED_FLOPS
    from keras_attention.evaluation.report import write_report
    from keras_attention.evaluation.report_text import report_text
    from keras_attention.recipes.evaluate import evaluate_run
    from keras_attention.recipes.prepare import found_batches

    if options.gpu is not None and options.gpu not in SUSTAINED_FLOPS:
        raise ValueError(
            f"--gpu must be one of {', '.join(SUSTAINED_FLOPS)}. Received: {options.gpu}"
        )
    # Another measure would give another share than the one in the run's log.
    training = (run.finished_report() or {}).get("training", {})
    # The weights of checkpoints are wanted, not the state of their optimizer.
    model.compile(optimizer=None)
    report = evaluate_run(
        run,
        settings,
        model,
        tokenizer,
        *found_batches(settings, tokenizer, run.store),
        sources,
        references,
        name=options.name or options.source_file.name,
        devices=options.devices,
        device=options.gpu,
        peak=training.get("device_peak"),
        samples=options.samples,
    )
    write_report(report, run.path, settings)
    print(report_text(report, title=run.name), end="")


def _compare_searches(
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    model: Any,
    tokenizer: Any,
    sources: list[str],
    references: list[str],
) -> None:
    from keras_attention.recipes.compare import compare_searches, searches_text

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
    tokenizer: Any,
    sources: list[str],
    references: list[str],
) -> None:
    from keras_attention.decoding.model_search import PRECISIONS
    from keras_attention.recipes.compare import PLAIN, compare_precisions, precisions_text

    for precision in options.precision:
        if precision not in (PLAIN, *PRECISIONS):
            raise ValueError(
                f"--try-precision must be one of {', '.join([PLAIN, *PRECISIONS])}. "
                f"Received: {precision}"
            )
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
