"""`keras-attention verify PATH ...`: whether files are still as they were written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.options import Parser, adding
from keras_attention.recipes.bulk_folder import MANIFEST
from keras_attention.recipes.bulk_parts import PARTS, check_part
from keras_attention.utils.files import (
    LOCK,
    PARTIAL,
    REPLACED,
    DamagedFile,
    read_signed_json,
    verify_files,
)
from keras_attention.utils.progress import Progress
from keras_attention.utils.signed_archive import verify_archive
from keras_attention.utils.signed_json import CHECKSUM

DESCRIPTION = """Check the checksums of all files in a folder: a run, a token store, a tokenizer...

Prints a line for each damaged file, with what to do, and how many files were compared. Exits with code 1
if a file is damaged. Changes nothing.
"""
EXAMPLE = """
example:
  keras-attention verify runs/demo
"""
# What to do, by the name of the damaged file or of a folder that it is in.
REMEDIES = {
    "tokenizer": "Restore it from a copy: the model is useless without it",
    "store": "Delete the folder of this store: the command that started the run builds it again",
    "checkpoints": "Nothing to do: the run continues from the one before it. Or restore a copy",
    "averaged": "Move it and report.json away: the command that started the run makes both again",
    "spec": "Move it, model.keras and report.json away: the command that started the run writes them again",
    "config.json": "Restore it from a copy",
    "report.json": "Move it away: the command that started the run writes it again",
    "model.keras": "Move it and report.json away: the command that started the run writes both again",
    PARTS: "The same command makes it again",
}
OWN = (LOCK, PARTIAL, REPLACED)  # files of running and of killed writers


def main(arguments: Sequence[str], program: str) -> None:
    """Compare the checksums of folders and files."""
    parser = Parser(prog=program, description=DESCRIPTION, epilog=EXAMPLE)
    adding(parser)("PATH", "a run's folder, or any other file or folder", nargs="+")
    given = parser.parse_args(arguments).path
    for path in given:
        if "://" in path:
            raise ValueError(
                f"verify reads local files alone. Copy '{path}' to this machine first."
            )
    paths = list(map(Path, given))
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no '{path}'.")
    found = sorted({file for path in paths for file in _files(path)})
    compared, damaged = set(), 0
    with Progress(len(found), "comparing checksums", "files") as progress:
        for file in found:
            try:
                compared |= set(_verify(file))
            except (DamagedFile, OSError) as error:
                damaged += 1
                print(f"{str(error).rstrip('. ')}. {_remedy(file)}.")
            progress.add(1)
    rest = [file for file in found if file not in compared]
    without = f"; {len(rest)} other files have no checksum" if rest else ""
    print(f"{len(compared)} files compared, {damaged} damaged{without}.")
    if damaged:
        raise SystemExit(1)


def _files(path: Path) -> Iterator[Path]:
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_file() and not any(part.startswith(OWN) for part in file.parts):
            yield file


def _verify(file: Path) -> Iterator[Path]:
    """Compare a file, and those whose checksums it holds; yields them."""
    if file.suffix == ".keras":
        verify_archive(file)
        yield file
    elif file.parent.parent.name == PARTS and (file.parents[2] / MANIFEST).is_file():
        check_part(file)
        yield file
    elif file.suffix == ".sha256":
        yield from _verify_record(file)
    elif file.suffix == ".json" and not _is_unsigned(file):
        listed: Any = read_signed_json(file).get("sha256", {})
        yield file
        if isinstance(listed, dict):
            verify_files(file.parent, listed)
            yield from (file.parent / name for name in listed)


def _verify_record(record: Path) -> Iterator[Path]:
    """Yield a checksum in a file of its own, as downloads have."""
    sha256, _, name = record.read_text("utf-8").strip().partition("  ")
    if name == record.stem and (record.parent / name).is_file():
        verify_files(record.parent, {name: sha256})
        yield from (record, record.parent / name)


def _is_unsigned(file: Path) -> bool:
    """Whether it is plain JSON: settings, a report, or another program's."""
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    return not isinstance(value, dict) or CHECKSUM not in value


def _remedy(file: Path) -> str:
    for name in (file.name, *(parent.name for parent in file.parents)):
        if name in REMEDIES:
            return REMEDIES[name]
    return "Restore it from a copy, or make it again"
