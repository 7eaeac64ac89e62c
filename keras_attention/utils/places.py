"""Paths on this machine, and at URLs such as `s3://bucket/a.gz`, which universal-pathlib treats alike."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from keras_attention.utils.checks import check_path
from keras_attention.utils.files import PARTIAL, atomic_file, locked, remove_leftovers

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


def check_remote_file(place: Any) -> Any:
    """Raise FileNotFoundError unless a place that is not on this machine is a file; return it."""
    if not place.is_file():
        what = "is a folder" if place.is_dir() else "does not exist"
        raise FileNotFoundError(f"'{place}' {what}; a text file, plain or packed, was expected.")
    return place


def matching_files(pattern: str) -> list[str]:
    """Return the paths or URLs that match a pattern such as `corpus/*.gz`, sorted."""
    place = check_place("pattern", pattern)
    if place.exists():  # A file may have a pattern's characters in its name.
        return [str(place)]
    if isinstance(place, Path):
        return sorted(glob.glob(str(place), recursive=True))
    found = sorted(place.fs.glob(place.path))
    return [f"{place.protocol}://{path.lstrip('/')}" for path in found]


def open_place(place: Place) -> io.BufferedReader:
    """Open a file to read its bytes."""
    file: Any = place.open("rb")
    return file if isinstance(place, Path) else io.BufferedReader(file)


def sha256_of_place(place: Place) -> str:
    """Hex sha256 of a file."""
    with open_place(place) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Folder:
    """A folder whose files are written whole or not at all.

    Elsewhere than on this machine there are no locks: two processes may both do the same work.
    """

    def __init__(self, path: Place) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def place(self, name: str) -> Place:
        """Return the place of a file in the folder."""
        return self.path / name

    def make(self) -> None:
        """Make the folder and its parents."""
        self.path.mkdir(parents=True, exist_ok=True)

    def names(self, folder: str = "") -> list[str]:
        """List the folder or a folder in it: [] if it does not exist, [""] if it is a file."""
        path = self.path / folder if folder else self.path
        if not isinstance(path, Path):
            path.fs.invalidate_cache()
            if path.is_file():
                return [""]
        # One question to the system: between two, another process may make the folder.
        try:
            return [one.name for one in path.iterdir()]
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            return [""] if path.exists() else []

    def write(self, name: str, content: bytes) -> None:
        """Write a file in the folder; the name may include subfolders."""
        with self.writer(name) as file:
            file.write(content)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file to write to, which appears when the block ends."""
        place = self.place(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(place, Path):
            with atomic_file(place) as file:
                yield file
            return
        # Each process uses its own name, because nothing is locked.
        partial = place.parent / f"{PARTIAL}{os.getpid()}-{place.name}"
        try:
            with partial.open("wb") as file:
                yield file
            place.fs.mv(partial.path, place.path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                place.fs.rm(partial.path)

    def locked(self, name: str, timeout: float = -1) -> contextlib.AbstractContextManager[None]:
        """Keep other processes of this machine from working on a name; raises filelock.Timeout."""
        place = self.place(name)
        return locked(place, timeout) if isinstance(place, Path) else contextlib.nullcontext()

    def remove(self, folder: str) -> None:
        """Delete a subfolder, if it exists."""
        place = self.place(folder)
        if isinstance(place, Path):
            shutil.rmtree(place, ignore_errors=True)
            return
        with contextlib.suppress(FileNotFoundError):
            place.fs.rm(place.path, recursive=True)

    def remove_leftovers(self) -> None:
        """Delete the temporary files of killed processes."""
        if isinstance(self.path, Path):
            remove_leftovers(self.path)
            return
        for name in self.names():
            if name.startswith(PARTIAL):
                with contextlib.suppress(FileNotFoundError):
                    self.path.fs.rm((self.path / name).path)
