"""Paths on this machine, and URLs such as `s3://bucket/a.gz`, which universal-pathlib opens by fsspec."""

from __future__ import annotations

import contextlib
import glob
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeAlias

from keras_attention.utils.checks import check_path
from keras_attention.utils.files import PARTIAL, atomic_file

if TYPE_CHECKING:
    from upath import UPath

Place: TypeAlias = "Path | UPath"


def check_place(name: str, value: Any) -> Place:
    """Raise unless a value is a path or a URL that fsspec supports, and return it as a `Place`.

    Paths and `file://` URLs need no other package.

    >>> check_place("inputs", "file:///data/news.gz").as_posix()
    '/data/news.gz'
    """
    if hasattr(value, "fs"):
        return value
    if not isinstance(value, str) or "://" not in value:
        return check_path(name, value)
    if value.startswith("file://"):
        return check_path(name, value.removeprefix("file://"))
    try:
        from upath import UPath
    except ImportError:
        raise ImportError(
            f"'{value}' is not on this machine. Reading and writing there needs universal-pathlib: "
            "pip install 'keras-attention-transformer[ray]', and for each kind of URL a package such as s3fs"
        ) from None
    try:
        place = UPath(value.rstrip("/"))
        place.fs.invalidate_cache()
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be a path or a URL that fsspec supports. Received: {name}={value!r} ({error})"
        ) from None
    return place


Placed = Annotated[str | os.PathLike[str], check_place]


def matching_files(pattern: str) -> list[str]:
    """Return the paths or URLs that match a pattern such as `corpus/*.gz`, sorted."""
    place = check_place("pattern", pattern)
    if place.exists():  # A file may have a pattern's characters in its name.
        return [str(place)]
    if isinstance(place, Path):
        return sorted(glob.glob(str(place), recursive=True))
    # Of HTTP these are URLs, of others paths.
    return [
        place.fs.unstrip_protocol(path.lstrip("/")) for path in sorted(place.fs.glob(place.path))
    ]


def names_in(folder: Place) -> list[str]:
    """Return the names of what is in a folder, which need not exist."""
    if not isinstance(folder, Path):
        folder.fs.invalidate_cache()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [one.name for one in folder.iterdir()]
    return []


def reading(place: Place) -> io.BufferedReader:
    """Open a file to read its bytes."""
    file: Any = place.open("rb")
    return file if isinstance(place, Path) else io.BufferedReader(file)


@contextlib.contextmanager
def writing(place: Place) -> Iterator[IO[bytes]]:
    """Open a file to write to, which appears when the block ends, or not at all if it fails."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(place, Path):
        with atomic_file(place) as file:
            yield file
        return
    partial = place.parent / f"{PARTIAL}{place.name}"
    try:
        with partial.open("wb") as file:
            yield file
        place.fs.mv(partial.path, place.path)
    except BaseException:
        with contextlib.suppress(Exception):  # The first error is the one to tell.
            partial.unlink()
        raise
