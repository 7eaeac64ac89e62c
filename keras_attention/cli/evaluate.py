"""`keras-attention evaluate RUN`: a report on a finished run, or a comparison of runs or search settings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attention.cli.options import Parser
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import typed_text
from keras_attention.data.parallel_text import FilePairs
from keras_attention.data.text_files import is_pipe
from keras_attention.utils.checks import check_integer
from keras_attention.utils.files import check_destination, write_json
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder

if TYPE_CHECKING:
    from keras_attention.recipes.run import Run

DESCRIPTION = """Score a run on your own sentences, or compare several runs.

For one run, it translates with the first and the last of the checkpoints that the run averages, and with
their average. It prints the report and writes nothing into the run's folder.

For several runs, it prints their scores and whether each differs from the first by more than chance. Without
files, it compares the translations that the runs have kept of their test set, which must be the same.

With --try-precision, it translates with the run's model in its own precision and in each precision that you
name, and prints scores and times. With --try-beam-size or --try-length-penalty, it does the same for each of
these search settings; use the files of a validation set for this.
"""

# The keys of `evaluation.cost.SUSTAINED_FLOPS`, which needs Keras.
GPUS = ("K80", "K40", "M40", "P100")
EXAMPLE = """
examples:
  keras-attention evaluate runs/demo --source-file test.en --reference-file test.de
  keras-attention evaluate runs/one runs/other
  keras-attention evaluate runs/demo --source-file val.en --reference-file val.de --try-beam-size 8
"""


def main(arguments: Sequence[str], program: str = "keras-attention evaluate") -> None:
    """Report on one run on sentences from two files, or compare several runs."""
    options = _parser(program).parse_args(arguments)
    tries_searches = bool(options.beam_size or options.length_penalty)
    if tries_searches and options.precision:
        raise ValueError(
            "Give --try-precision, or --try-beam-size and --try-length-penalty, not both."
        )
    if options.output is not None:
        if tries_searches or options.precision:
            raise ValueError("--output writes a report; the options --try-... make none.")
        check_destination(options.output)
    if (options.source_file is None) != (options.reference_file is None):
        raise ValueError("--source-file and --reference-file belong together.")
    for file in (options.source_file, options.reference_file):
        if file is not None and not file.is_file() and not is_pipe(file):
            raise FileNotFoundError(f"'{file}' does not exist.")
    _check_numbers(options)
    if len(options.run) > 1:
        _compare_runs(options)
        return
    run = RunFolder(options.run[0])
    run.settings((*SEARCH_SETTINGS, "averaged_checkpoints", "dtype", "languages"))
    run.check_finished()
    if options.source_file is None:
        raise ValueError(
            "One run needs --source-file and --reference-file. (Its report on its own test set is "
            f"'{run.report_text}'.)"
        )
    sources, references = _given_lines(options)
    start_backend()
    from keras_attention.recipes.run import Run

    opened = Run.open(run.path)
    if tries_searches:
        _compare_searches(options, opened, sources, references)
    elif options.precision:
        _compare_precisions(options, opened, sources, references)
    else:
        report = opened.evaluation(
            sources,
            references,
            name=options.name or options.source_file.name,
            devices=options.devices,
            device=options.gpu,
            samples=options.samples,
        )
        _show(report, run.name, options.output)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description=DESCRIPTION,
        epilog=EXAMPLE,
    )
    add = parser.add_argument
    runs = "the run's folder; several are compared with the first"
    add("run", type=Path, nargs="+", metavar="RUN", help=runs)
    file: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    add("--source-file", **file, help="sentences to translate, one per line")
    add("--reference-file", **file, help="their reference translations, line by line")
    add("--output", **file, help="a new file for all figures of the report, as JSON (none)")
    name = "name of these sentences in the report (the name of the source file)"
    add("--name", type=typed_text, metavar="TEXT", help=name)
    samples = "resamples of the paired bootstrap (1000)"
    add("--samples", type=int, default=1000, metavar="N", help=samples)
    cost = parser.add_argument_group("cost, by the paper's formula")
    add_cost = cost.add_argument
    add_cost("--devices", type=int, default=1, metavar="N", help="how many devices trained (1)")
    gpu = f"a GPU of the paper: {', '.join(GPUS)} (this machine's speed)"
    add_cost("--gpu", metavar="NAME", choices=GPUS, help=gpu)
    tries = parser.add_argument_group("settings to try with one run; each can be repeated")
    precisions = "float32, bfloat16, float16, int8, or plain: the plain search in float32"
    for name, kind, metavar, text in (
        ("precision", str, "NAME", precisions),
        ("beam-size", int, "N", "a beam size"),
        ("length-penalty", float, "X", "a length penalty, the paper's alpha"),
    ):
        tries.add_argument(
            f"--try-{name}",
            dest=name.replace("-", "_"),
            action="append",
            type=kind,
            metavar=metavar,
            help=text,
        )
    return parser


def _check_numbers(options: argparse.Namespace) -> None:
    """Refuse options before the backend starts, which takes long."""
    from keras_attention.decoding.hypotheses import check_search_options
    from keras_attention.engine.select import PRECISIONS, check_engine

    for name in ("samples", "devices"):
        check_integer(f"--{name}", getattr(options, name), least=1)
    for value in options.beam_size or ():
        check_search_options(value, 0.0)
    for value in options.length_penalty or ():
        check_search_options(1, value)
    for precision in options.precision or ():
        if precision not in ("plain", *PRECISIONS):
            raise ValueError(
                f"--try-precision must be one of {', '.join(['plain', *PRECISIONS])}. "
                f"Received: {precision}"
            )
        if precision == "int8":
            check_engine("numba", precision)


def _compare_runs(options: argparse.Namespace) -> None:
    """Scores of several runs, and their significance."""
    if options.beam_size or options.length_penalty or options.precision:
        raise ValueError("The options --try-... need one run. Received: several")
    if options.gpu is not None or options.devices != 1:
        raise ValueError("--gpu and --devices are for the cost of one run. Received: several")
    if len({path.resolve() for path in options.run}) < len(options.run):
        raise ValueError("The same run is given twice: there is nothing to compare.")
    names = [path.resolve().name for path in options.run]
    if len({*names}) < len(names):
        names = list(map(str, options.run))
    runs = {name: RunFolder(path) for name, path in zip(names, options.run, strict=True)}
    settings = {name: run.settings((*SEARCH_SETTINGS, "languages")) for name, run in runs.items()}
    first, *others = runs
    for other in others:
        pairs = [settings[name]["languages"] for name in (first, other)]
        if pairs[0] != pairs[1]:
            raise ValueError(
                f"'{first}' translates {' to '.join(pairs[0])}, '{other}' {' to '.join(pairs[1])}: they "
                "cannot be compared."
            )
    start_backend()
    from keras_attention.decoding.translator import Translator
    from keras_attention.recipes.compare import own_translations, runs_report

    decoding = {}
    if options.source_file is None:
        translations, references = own_translations(runs)
        name = "the runs' own test set"
    else:
        for folder in runs.values():
            folder.check_finished()
        sources, references = _given_lines(options)
        name = options.source_file.name
        translations = {}
        for run, folder in runs.items():
            translations[run] = Translator.from_run(folder.path)(sources)
            search = (f"{key} {settings[run][key]}" for key in SEARCH_SETTINGS)
            decoding[f"{run}:"] = " ".join(search)
    report = runs_report(
        translations,
        references,
        name=options.name or name,
        language=settings[first]["languages"][1],
        decoding=decoding,
        samples=options.samples,
    )
    _show(report, " and ".join(runs), options.output)


def _given_lines(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the lines of both files; as many in one as in the other."""
    pairs = list(FilePairs(options.source_file, options.reference_file))
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def _show(report: Mapping[str, Any], title: str, output: Path | None) -> None:
    """Print a report, and write its figures to the file that was asked for."""
    from keras_attention.evaluation.report_text import report_text

    if output is not None:
        write_json(output, {key: value for key, value in report.items() if key != "translations"})
    print(report_text(report, title=title), end="")


def _compare_searches(
    options: argparse.Namespace, run: Run, sources: list[str], references: list[str]
) -> None:
    from keras_attention.recipes.compare import compare_searches, searches_text

    scores = compare_searches(
        run.model,
        run.tokenizer,
        sources,
        references,
        options.beam_size or [run.config.beam_size],
        options.length_penalty or [run.config.length_penalty],
    )
    print(searches_text(scores, len(sources)), end="")


def _compare_precisions(
    options: argparse.Namespace, run: Run, sources: list[str], references: list[str]
) -> None:
    from keras_attention.recipes.compare import PLAIN, compare_precisions, precisions_text

    own = [] if PLAIN in options.precision else [run.model.compute_dtype]
    results = compare_precisions(
        run.model,
        run.tokenizer,
        sources,
        references,
        list(dict.fromkeys([*own, *sorted(options.precision, key=lambda name: name != PLAIN)])),
        beam_size=run.config.beam_size,
        length_penalty=run.config.length_penalty,
    )
    print(precisions_text(results, len(sources)), end="")
