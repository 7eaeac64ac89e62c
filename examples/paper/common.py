"""What these scripts share: their start, rows x seeds of training runs, tables and pictures.

Import it before `keras_attention`; see the first import below.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import math
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

try:
    # After this, `keras_attention` imports Keras only where it is used: `--help` and refusals come at
    # once, and `start_keras` starts the backend without its log messages.
    import keras_attention_light  # noqa: F401
except ModuleNotFoundError:
    raise SystemExit(
        "This script needs the package keras_attention. In the folder of its README.md: "
        "pip install -e '.[tensorflow]'"
    ) from None

from keras_attention import TranslationConfig, load_corpus
from keras_attention.cli.options import Parser, add_options
from keras_attention.cli.quiet import start_backend as start_keras
from keras_attention.cli.streams import naming_the_folder, orderly_exit
from keras_attention.cli.train_settings import configured
from keras_attention.recipes import RECIPES
from keras_attention.recipes.catalog import DEMO
from keras_attention.utils.files import (
    atomic_file,
    read_json,
    write_atomically,
    write_json,
)
from keras_attention.utils.folder import claimed
from keras_attention.utils.progress import say, show
from keras_attention.utils.run_folder import differences

if TYPE_CHECKING:
    from keras_attention import Corpus

FORMATS = ("png", "svg")
RECORD = "measured.json"  # This file marks a folder as that of a script.
NEVER = 1_000_000_000  # Epochs until BLEU is computed during training.
CORPORA = tuple(name for name in RECIPES if not name.endswith(("_big", "_en_fr")))
BUDGET = (
    *("steps", "minutes", "batch_tokens", "max_shapes"),
    *("vocabulary_size", "warmup_steps", "peak_learning_rate", "checkpoint_updates", "dtype"),
)
# Tells models apart that train for some minutes. Dropout as in the paper.
SMALL = dataclasses.replace(
    DEMO, model_arguments={}, steps=600, bleu_every=NEVER, attention_log=False
)

# The command line


class Quick(argparse.Action):
    """Stands for other options; those that follow it win."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, *_: Any) -> None:
        parser.parse_args(self.const, namespace)


def new_parser(description: str | None, file: str, quick: str | None = None) -> Parser:
    """Make a parser with `--output-dir` and, if it stands for something, `--quick`; options may follow.

    Args:
        description: The script's docstring.
        file: The script's `__file__`.
        quick: Options with which the script takes at most two minutes.
    """
    parser = Parser(prog=Path(file).name, description=description)
    parser.add_argument(
        "--output-dir",
        type=Path,
        metavar="PATH",
        help=f"folder for the results (runs/{Path(file).stem}-TIME); the same command continues there",
    )
    if quick is not None:
        told = f"a small part, in less than two minutes{quick and ': '}{quick}"
        default = argparse.SUPPRESS
        parser.add_argument(
            "--quick", action=Quick, nargs=0, const=quick.split(), default=default, help=told
        )
    return parser


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for argparse: an integer of at least this."""

    def parse(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least:,}. Received: {text}")
        return int(text)

    parse.__name__ = "int"  # argparse names it in errors.
    return parse


def run(
    main: Callable[[argparse.Namespace, Path], Any],
    parser: argparse.ArgumentParser,
    needs: Sequence[str] = (),
    arguments: Sequence[str] | None = None,
) -> Any:
    """Parse the arguments and call `main(options, folder)`; errors end the script with a message.

    Args:
        main: The script.
        parser: Its parser.
        needs: Packages that it needs besides those of every installation and matplotlib.
        arguments: Arguments in place of `sys.argv`.
    """
    with orderly_exit(parser.prog):
        options = parser.parse_args(arguments)
        for package in ("matplotlib", *needs):
            if importlib.util.find_spec(package) is None:
                raise ImportError(f"This script needs {package}: pip install {package}")
        fresh = Path("runs") / f"{Path(parser.prog).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = options.output_dir or fresh
        with naming_the_folder(folder, options.output_dir is not None):
            return main(options, folder)
    raise AssertionError("`orderly_exit` ends the process after an error.")


def add_training(
    parser: Parser,
    seeds: Sequence[int],
    settings: Iterable[str] = BUDGET,
    test_sentences: int | None = None,
    **aliases: list[str],
) -> None:
    """Add the options of scripts that train: corpus, seeds, and settings of the recipe."""
    add = parser.add_argument
    add("--corpus", choices=CORPORA, default="demo", help="what to train on (demo)")
    add("--data-dir", type=Path, metavar="PATH", help="folder with its files; else downloaded")
    add("--pairs", type=at_least(1), metavar="N", help="train on its first N pairs only (all)")
    add(
        "--test-sentences",
        type=at_least(1),
        metavar="N",
        default=test_sentences,
        help=f"translate at most N test sentences for BLEU ({test_sentences or 'all'})",
    )
    shown = " ".join(map(str, seeds))
    add("--seeds", type=int, nargs="+", metavar="N", default=seeds, help=f"seeds ({shown})")
    group = parser.add_argument_group("settings (those of the corpus' recipe if not given)")
    add_options(group, TranslationConfig, settings, dict.fromkeys(settings), aliases)


def recipe(options: argparse.Namespace, demo: TranslationConfig = SMALL) -> TranslationConfig:
    """Return the recipe of the chosen corpus with the chosen settings; nothing extra is logged."""
    known = dataclasses.replace(RECIPES[options.corpus], bleu_every=NEVER, attention_log=False)
    return configured(demo if options.corpus == "demo" else known, vars(options))


def corpus_of(options: argparse.Namespace) -> Corpus:
    """Load the chosen part of the chosen corpus."""
    corpus = load_corpus(options.corpus, options.data_dir)
    number = options.test_sentences
    if number is not None and corpus.test is not None:
        number = min(number, len(corpus.test))
    return corpus.first(options.pairs, number)


# Rows x seeds

Configs = Mapping[tuple[str, int], TranslationConfig]


def configs_of(
    rows: Iterable[str], seeds: Sequence[int], config_of: Callable[[str], TranslationConfig]
) -> dict[tuple[str, int], TranslationConfig]:
    """Return the settings of all rows, seed by seed: a stopped script then has all rows of some seeds."""
    if not seeds or len(set(seeds)) < len(seeds):
        given = " ".join(map(str, seeds))
        raise ValueError(f"--seeds must be one or more different numbers. Received: {given}")
    configs = {row: config_of(row) for row in rows}
    return {
        (row, seed): dataclasses.replace(config, seed=seed)
        for seed in seeds
        for row, config in configs.items()
    }


def deciding(corpus: Corpus, config: TranslationConfig) -> dict[str, Any]:
    """Return what decides the results of a recipe on a corpus: all settings but what is logged."""
    settings = {name: value for name, value in vars(config).items() if name != "attention_log"}
    return {"corpus": corpus.name, "fingerprint": corpus.train.fingerprint(), **settings}


@contextlib.contextmanager
def trained(
    results: Results,
    corpus: Corpus,
    configs: Configs,
    measure: Callable[[str, Corpus, TranslationConfig, Path], Any],
) -> Iterator[dict[str, dict[int, Any]]]:
    """Train every row with every seed; yield what was measured, by row and seed, with the folder locked.

    All settings are checked before the folder is claimed, so a refused option leaves nothing behind.

    Args:
        results: The folder; runs lie below `runs/`.
        corpus: What to train on.
        configs: The settings; see `configs_of`.
        measure: Called with row, corpus, settings and the run's folder; trains, and returns figures.
    """
    start_keras()
    from keras_attention.recipes.prepare import Resolved

    for config in {row: config for (row, _), config in configs.items()}.values():
        Resolved.of(config).check(corpus.train)
    found: dict[str, dict[int, Any]] = {}
    with results.claimed():
        for number, ((row, seed), config) in enumerate(configs.items(), start=1):
            say(f"Run {number} of {len(configs)}: {row}, seed {seed}")
            folder = results.folder / "runs" / f"{row}-{seed}"
            figures = functools.partial(measure, row, corpus, config, folder)
            found.setdefault(row, {})[seed] = results.get(f"{row} {seed}", figures)
        yield found


class Results:
    """A script's folder. It keeps what was measured, so that the same command can continue after a stop.

    Args:
        folder: The folder; nothing is made before it is claimed.
        settings: The settings that decide the results; JSON-serialisable.

    Raises:
        ValueError: If the folder holds other files, or results of other settings.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        self.folder = Path(folder)
        self.settings = json.loads(json.dumps(settings))
        self._file = self.folder / RECORD
        self.points: dict[str, Any] = {}
        if self._file.exists():
            record = read_json(self._file, "Move the folder away: the same command measures again.")
            # What was no setting yet when the results were written was at its default.
            defaults = {
                field.name: field.default for field in dataclasses.fields(TranslationConfig)
            }
            known = {name: defaults[name] for name in defaults.keys() & self.settings.keys()}
            there = {**json.loads(json.dumps(known, default=repr)), **record["settings"]}
            if different := differences(there, self.settings):
                raise ValueError(
                    f"'{self.folder}' holds results with other settings ({'; '.join(different.values())}). "
                    "Nothing was changed there. Choose another --output-dir, or use the same settings."
                )
            self.points = record["points"]
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ValueError(
                f"'{self.folder}' exists but holds no results of this script. Nothing was changed "
                "there. Choose another --output-dir."
            )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Claim the folder, and keep out other processes; a refusal before any result leaves nothing."""
        is_new = not self._file.exists()
        with claimed(self.folder, "results"):
            self.folder.mkdir(exist_ok=True)
            self._write()
            try:
                yield
            except (ValueError, TypeError, ImportError):
                if is_new and not self.points and not self._has_trained():
                    self._file.unlink()
                    shutil.rmtree(self.folder / "runs", ignore_errors=True)
                    with contextlib.suppress(OSError):
                        self.folder.rmdir()  # only if it is empty
                raise

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return a stored result, or a new one if there is none. It must be JSON-serialisable."""
        if name not in self.points:
            self.points[name] = json.loads(json.dumps(measure()))
            self._write()
        return self.points[name]

    def _has_trained(self) -> bool:
        return any(self.folder.glob("runs/*/checkpoints/update-*"))

    def _write(self) -> None:
        write_json(self._file, {"settings": self.settings, "points": self.points})


class Paired(NamedTuple):
    """The mean of differences, paired by seed, and half of its 95 % interval (infinite for one seed)."""

    mean: float
    half: float

    @classmethod
    def of(cls, ours: Iterable[float], theirs: Iterable[float]) -> Paired:
        """Compare the values of the same seeds."""
        differences = [a - b for a, b in zip(ours, theirs, strict=True)]
        return cls(statistics.fmean(differences), half_width(differences))

    @classmethod
    def of_logs(cls, ours: Iterable[float], theirs: Iterable[float]) -> Paired:
        """Compare logarithms: the mean is the logarithm of the geometric mean of the ratios."""
        return cls.of(map(math.log, ours), map(math.log, theirs))

    @property
    def is_resolved(self) -> bool:
        """Whether the interval excludes 0."""
        return abs(self.mean) > self.half

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval; None for one seed."""
        if math.isinf(self.half):
            return None
        return self.mean - self.half, self.mean + self.half

    @property
    def verdict(self) -> str:
        """Whether the difference is larger than its noise, in words."""
        return verdict(self.is_resolved)


def verdict(resolved: bool) -> str:
    """Say in words whether a difference is larger than its noise."""
    return "resolved" if resolved else "not resolved"


# 97.5 % points of Student's t for 1, 2, ... degrees of freedom.
T_POINTS = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
NORMAL_POINT = 1.95996


def half_width(values: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of a mean (Student's t); infinite for one value or none."""
    if len(values) < 2:
        return math.inf
    freedom = len(values) - 1
    if freedom <= len(T_POINTS):
        point = T_POINTS[freedom - 1]
    else:  # its series in 1 / freedom
        z = NORMAL_POINT
        point = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        point += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return point * statistics.stdev(values) / math.sqrt(len(values))


def spread(values: Sequence[float], mean: str = ".4g", deviation: str = ".3g") -> str:
    """Write a mean and, for several values, their standard deviation, in these formats."""
    noise = f" ± {statistics.stdev(values):{deviation}}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{mean}}{noise}"


# Tables and pictures


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for a terminal and a page.

    Attributes:
        title: Its headline.
        columns: Names of the columns.
        rows: Cells as they are printed; None leaves a cell blank. A short row ends with blank cells.
        notes: Sentences below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Return it with columns side by side."""
        lines = self._lines()
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        text = [self.title, ""]
        for first, *others in lines:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            text.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([*text, "", *self.notes, *([""] if self.notes else [])])

    def markdown(self) -> str:
        """Return it as Markdown."""
        heading, *rows = self._lines()
        lines = [f"## {self.title}", "", f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def _lines(self) -> list[list[str]]:
        cells = [["" if cell is None else str(cell) for cell in row] for row in self.rows]
        return [list(self.columns), *(row + [""] * (len(self.columns) - len(row)) for row in cells)]


def write(
    folder: Path,
    name: str,
    tables: Sequence[Table],
    figures: Mapping[str, Any],
    data: Mapping[str, Any],
) -> None:
    """Print the tables; write each figure as PNG and SVG, and `NAME.txt`, `.md` and last `.json`.

    Args:
        folder: The folder.
        name: Name of the files.
        tables: The tables.
        figures: `matplotlib` figures by their names.
        data: Every figure, for programs; the environment is added.
    """
    from keras_attention.utils.versions import environment

    text = "\n".join(table.text() for table in tables)
    show(text)
    write_atomically(folder / f"{name}.txt", text)
    write_atomically(folder / f"{name}.md", "\n".join(table.markdown() for table in tables))
    for title, figure in figures.items():
        for suffix in FORMATS:
            with atomic_file(folder / f"{title}.{suffix}") as file:
                figure.savefig(file, format=suffix, dpi=150)
    write_json(
        folder / f"{name}.json", json.loads(json.dumps({**data, "environment": environment()}))
    )
    pictures = "".join(f", {title}.png, {title}.svg" for title in figures)
    show(f"The results are in {folder}: {name}.txt, {name}.md, {name}.json{pictures}")
