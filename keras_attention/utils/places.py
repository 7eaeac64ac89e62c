"""Files and folders on this machine, or at a URL that fsspec supports: `s3://bucket/a.gz`, `gs://...`."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from keras_attention.utils.checks import check_path
from keras_attention.utils.files import (
    PARTIAL,
    atomic_file,
    locked,
    remove_leftovers,
    write_atomically,
)

# The path of a file on this machine, or the URL of one elsewhere.
Place = Path | str


def check_place(name: str, value: Any) -> Place:
    """Raise unless a value is a path or a URL that fsspec supports, and return it as a `Place`.

    Paths and `file://` URLs do not need fsspec.

    Raises:
        ValueError: If it is neither.
        ImportError: If fsspec, or its part for this kind of URL, is not installed.

    >>> check_place("inputs", "file:///data/news.gz").as_posix()
    '/data/news.gz'
    """
    if not isinstance(value, str) or "://" not in value:
        return check_path(name, value)
    if value.startswith("file://"):
        return check_path(name, value.removeprefix("file://"))
    try:
        _file_system(value)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must be a path or a URL that fsspec supports. Received: {name}={value!r} ({error})"
        ) from None
    return value.rstrip("/")


def place_name(place: Place) -> str:
    """Return the file name, the last part of a place."""
    return str(place).rsplit("/", 1)[-1] if isinstance(place, str) else place.name


def check_remote_file(url: str) -> str:
    """Raise FileNotFoundError unless a URL is that of a file; return it."""
    system, path = _file_system(url)
    if not system.isfile(path):
        what = "is a folder" if system.isdir(path) else "does not exist"
        raise FileNotFoundError(f"'{url}' {what}; a text file, plain or packed, was expected.")
    return url


def matching_files(pattern: str) -> list[str]:
    """Return the paths or URLs that match a pattern such as `corpus/*.gz`, sorted."""
    place = check_place("pattern", pattern)
    if isinstance(place, str):
        system, path = _file_system(place)
        if not glob.has_magic(path):
            return [place] * system.exists(path)
        return [f"{place.split('://')[0]}://{one.lstrip('/')}" for one in sorted(system.glob(path))]
    # A file may have a pattern's characters in its name.
    return [str(place)] if place.exists() else sorted(glob.glob(str(place), recursive=True))


def open_place(place: Place) -> io.BufferedReader:
    """Open a file to read its bytes."""
    if isinstance(place, str):
        system, path = _file_system(place)
        return io.BufferedReader(system.open(path, "rb"))
    return open(place, "rb")


def size_of(place: Place) -> int:
    """Return the size of a file in bytes."""
    if isinstance(place, str):
        system, path = _file_system(place)
        return int(system.size(path))
    return place.stat().st_size


def sha256_of_place(place: Place) -> str:
    """Hex sha256 of a file."""
    digest = hashlib.sha256()
    with open_place(place) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


class LocalFolder:
    """A folder on this machine, whose files are written whole or not at all.

    Args:
        path: The folder. `make` creates it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def place(self, name: str) -> Place:
        """Return the place of a file in the folder."""
        return self.path / name

    def make(self) -> None:
        """Make the folder and its parents."""
        self.path.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        """Whether the folder, or a file of its name, exists."""
        return self.path.exists()

    def is_file(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.path / name).is_file()

    def names(self, folder: str = "") -> list[str]:
        """List the folder or a folder in it: [] if it does not exist, [""] if it is a file."""
        path = self.path / folder
        # One question to the system: between two, another process may make the folder.
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            return [""] if path.exists() else []

    def open(self, name: str) -> IO[bytes]:
        """Open a file to read its bytes."""
        return open(self.path / name, "rb")

    def write(self, name: str, content: bytes) -> None:
        """Write a file in the folder; the name may include subfolders."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / name, content)

    def writer(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """Open a file to write to, which appears when the block ends."""
        return atomic_file(self.path / name)

    def locked(self, name: str, timeout: float = -1) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from working on a name; raises filelock.Timeout."""
        return locked(self.path / name, timeout)

    def remove(self, folder: str) -> None:
        """Delete a subfolder, if it exists."""
        shutil.rmtree(self.path / folder, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Delete the temporary files of killed processes."""
        remove_leftovers(self.path)


class RemoteFolder:
    """Like `LocalFolder`, but at a URL. There are no locks: two processes may both do the same work.

    Args:
        url: URL of the folder.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._system, self._path = _file_system(url)

    def __str__(self) -> str:
        return self.url

    def place(self, name: str) -> Place:
        """Return the place of a file in the folder."""
        return f"{self.url}/{name}"

    def make(self) -> None:
        """Make the folder and its parents."""
        self._system.makedirs(self._path, exist_ok=True)

    def exists(self) -> bool:
        """Whether the folder, or a file of its name, exists."""
        return self._system.exists(self._path)

    def is_file(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._system.isfile(self._inner(name))

    def names(self, folder: str = "") -> list[str]:
        """List the folder or a folder in it: [] if it does not exist, [""] if it is a file."""
        path = self._inner(folder)
        self._system.invalidate_cache()
        if self._system.isfile(path):
            return [""]
        try:
            found = self._system.ls(path, detail=False)
        except FileNotFoundError:
            return []
        return [one.rstrip("/").rsplit("/", 1)[-1] for one in found]

    def open(self, name: str) -> IO[bytes]:
        """Open a file to read its bytes."""
        return self._system.open(self._inner(name), "rb")

    def write(self, name: str, content: bytes) -> None:
        """Write a file in the folder; the name may include subfolders."""
        with self.writer(name) as file:
            file.write(content)

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file to write to, which appears when the block ends."""
        folder, _, last = self._inner(name).rpartition("/")
        self._system.makedirs(folder, exist_ok=True)
        # Each process uses its own name, because nothing is locked.
        partial = f"{folder}/{PARTIAL}{os.getpid()}-{last}"
        try:
            with self._system.open(partial, "wb") as file:
                yield file
            self._system.mv(partial, self._inner(name))
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._system.rm(partial)

    def locked(self, name: str, timeout: float = -1) -> contextlib.AbstractContextManager[None]:
        """Do nothing: there are no locks."""
        return contextlib.nullcontext()

    def remove(self, folder: str) -> None:
        """Delete a subfolder, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(self._inner(folder), recursive=True)

    def remove_leftovers(self) -> None:
        """Delete the temporary files of killed processes."""
        for name in self.names():
            if name.startswith(PARTIAL):
                with contextlib.suppress(FileNotFoundError):
                    self._system.rm(self._inner(name))

    def _inner(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path


def folder_at(place: Place) -> LocalFolder | RemoteFolder:
    """The folder at a path or URL."""
    return RemoteFolder(place) if isinstance(place, str) else LocalFolder(place)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec.core
    except ImportError:
        raise ImportError(
            f"'{url}' is not on this machine. Reading and writing there needs fsspec: "
            "pip install 'keras-attention-transformer[ray]', and for each kind of URL a package such as s3fs"
        ) from None
    return fsspec.core.url_to_fs(url)
