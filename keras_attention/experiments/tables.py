"""Shared by the experiments: tables in three forms, and a folder that keeps measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock

from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.environment import environment
from keras_attention.utils.files import (
    atomic_file,
    locked,
    read_json,
    write_atomically,
    write_json,
)
from keras_attention.utils.progress import show

FORMATS = ("png", "svg")
# The file that marks a folder as an experiment's.
RECORD = "measured.json"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for a terminal, a page and a program.

    Attributes:
        title: Its headline.
        columns: Names of the columns.
        rows: Cells as they are printed; None and "" leave a cell blank.
        notes: Sentences below it.

    Example:

    >>> print(Table("Sizes", ["model", "million"], [["base", "65"], ["big", None]]).text())
    Sizes
    <BLANKLINE>
    model  million
    base        65
    big
    <BLANKLINE>
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Columns side by side."""
        lines = self._lines()
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        text = [self.title, ""]
        for first, *others in lines:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            text.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([*text, "", *self.notes, *([""] if self.notes else [])])

    def markdown(self) -> str:
        """For a page."""
        heading, *rows = self._lines()
        lines = [f"## {self.title}", "", f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def _lines(self) -> list[list[str]]:
        cells = [["" if cell is None else str(cell) for cell in row] for row in self.rows]
        return [list(self.columns), *cells]


class Measurements:
    """A folder that keeps measurements, so that the same call can continue after a stop.

    Args:
        folder: The experiment's folder; it is created if it does not exist.
        settings: The settings that decide the results; JSON-serialisable.

    Raises:
        ValueError: If the folder holds other files, or measurements made with other settings.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]):
        self.folder = Path(folder)
        self.settings = json.loads(json.dumps(settings))
        self._file = self.folder / RECORD
        self.points: dict[str, Any] = {}
        if self._file.exists():
            record = read_json(self._file, "Move the folder away: the same command measures again.")
            different = [
                f"{name}: {record['settings'].get(name)!r} there, {self.settings.get(name)!r} asked for"
                for name in sorted({*self.settings, *record["settings"]})
                if record["settings"].get(name) != self.settings.get(name)
            ]
            if different:
                raise ValueError(
                    f"'{self.folder}' holds measurements with other settings ({'; '.join(different)}). "
                    "Nothing was changed there. Choose another output folder, or use the same settings."
                )
            self.points = record["points"]
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ValueError(
                f"'{self.folder}' exists but holds no measurements of this experiment. Nothing was "
                "changed there. Choose another output folder."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Claim the folder for this experiment, and keep out a second process."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with locked(self.folder, timeout=0):
                self.folder.mkdir(exist_ok=True)
                self._write()
                yield
        except filelock.Timeout:
            raise ValueError(
                f"Another process works in '{self.folder}'. Nothing was changed there. Wait for it, "
                "or choose another output folder."
            ) from None

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """A stored measurement, or a new one if there is none. It must be JSON-serialisable."""
        if name not in self.points:
            self.points[name] = json.loads(json.dumps(measure()))
            self._write()
        return self.points[name]

    def _write(self) -> None:
        write_json(self._file, {"settings": self.settings, "points": self.points})


def deciding_settings(config: TranslationConfig) -> dict[str, Any]:
    """The settings of a recipe that decide results: all but what is logged."""
    return {name: value for name, value in vars(config).items() if name != "attention_log"}


def write_results(
    folder: Path,
    name: str,
    tables: Sequence[Table],
    figures: Mapping[str, Any],
    data: Mapping[str, Any],
) -> None:
    """Prints the tables; writes `NAME.txt`, `.md` and `.json`, and each figure as PNG and SVG.

    Args:
        folder: The experiment's own folder.
        name: Name of the files.
        tables: The tables.
        figures: `matplotlib` figures by their names.
        data: Every figure, for programs; the environment is added.
    """
    text = "\n".join(table.text() for table in tables)
    show(text)
    write_atomically(folder / f"{name}.txt", text)
    write_atomically(folder / f"{name}.md", "\n".join(table.markdown() for table in tables))
    write_json(folder / f"{name}.json", {**data, "environment": environment()})
    for title, figure in figures.items():
        save_figure(figure, folder / title)
    pictures = "".join(f", {title}.png, {title}.svg" for title in figures)
    show(f"The results are in {folder}: {name}.txt, {name}.md, {name}.json{pictures}")


def save_figure(figure: Any, path: Path, dpi: int = 150) -> None:
    """Writes a figure as PNG and SVG; `path` has no suffix."""
    for suffix in FORMATS:
        with atomic_file(path.with_name(f"{path.name}.{suffix}")) as file:
            figure.savefig(file, format=suffix, dpi=dpi)


def verdict(resolved: bool) -> str:
    """Says in words whether a difference is larger than its noise."""
    return "resolved" if resolved else "not resolved"
