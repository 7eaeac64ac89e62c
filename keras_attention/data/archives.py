"""Extracts named files from tar archives, and nothing else."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from keras_attention.data import text_files
from keras_attention.data.download import record
from keras_attention.utils.files import DamagedFile, atomic_file, sha256_of

DAMAGED = (tarfile.TarError, DamagedFile)
END_BYTES = 1024  # zeros, with which each archive ends
# No text compresses better than this: an archive with a larger ratio is malicious.
LARGEST_RATIO = 100
SMALL_BYTES = 1 << 26


def check_is_archive(path: Path) -> None:
    """Raise a ValueError unless a file is a whole tar archive, plain or packed; it is read to its end."""
    try:
        with _opened(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for _ in _members(path, archive):
                pass
            stream.check_end()
    except DAMAGED as error:
        raise ValueError(
            f"'{path}' is not a tar archive ({error}), or not a whole one. Does its address lead to a web "
            "page now?"
        ) from error


def extract(path: Path, members: Mapping[str, Path]) -> None:
    """Read named members of a tar archive into files, with their checksums beside them.

    The archive is read as a stream, to its end, where gzip stores its checksum; members that are packed
    themselves are, too. The files appear only then. Only the members asked for are written, to the paths
    that the caller gives: no name, link or mode in the archive decides where anything is written.
    """
    missing = dict(members)
    try:
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(_opened(path))
            archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r|"))
            for member in _members(path, archive):
                target = missing.pop(member.name.removeprefix("./"), None)
                if target is None:
                    continue
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    raise ValueError(
                        f"'{member.name}' in '{path}' is not a plain file but a link, a folder or a "
                        "device. Nothing was read from it: get the archive from its original address."
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                # They get their names when the stack is closed without an error.
                file = stack.enter_context(atomic_file(target))
                shutil.copyfileobj(content, file)
                file.flush()
                text_files.check_packed(file.name, member.name)
            stream.check_end()
            if missing:
                raise ValueError(f"'{path}' does not hold {', '.join(missing)}.")
    except DAMAGED as error:
        raise ValueError(
            f"'{path}' is damaged ({error}). Delete it, and '{path.name}.sha256' beside it, to "
            "download it again."
        ) from error
    for target in members.values():
        record(target, sha256_of(target))


def _members(path: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive, unless one says a size that `tarfile` would read without end."""
    limit = _largest(path)
    for member in archive:
        if member.offset_data + member.size > limit:
            raise ValueError(
                f"'{path}' holds more than {limit:,} bytes, too much for text: '{member.name}' has "
                f"{member.size:,}. Nothing was kept: get the archive from its original address."
            )
        yield member


def _largest(path: Path) -> int:
    """Return how many bytes of text an archive may hold."""
    return max(SMALL_BYTES, LARGEST_RATIO * path.stat().st_size)


class _Stream:
    """An unpacked archive, which remembers how it ended; `tarfile` itself does not ask."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._end, self._left = file, b"", limit

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:  # Of names and settings, which `tarfile` takes into memory.
            raise DamagedFile("it holds too much for text")
        self._end = (self._end + content)[-END_BYTES:]
        return content

    def check_end(self) -> None:
        """Read what is left, which the packing's checksum covers, and raise unless the archive is whole."""
        while self.read(text_files.CHUNK_BYTES):
            pass
        if self._end != bytes(END_BYTES):
            raise DamagedFile("it is cut off: the zeros at its end are missing")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open an archive, unpacked; `tarfile` itself would not verify gzip's checksum."""
    with open(path, "rb") as file:
        packing = text_files.packing_of(file.peek(text_files.LONGEST_MAGIC))
        with text_files.damage_named(path, packing):
            yield _Stream(file if packing is None else packing.open(file), _largest(path))
