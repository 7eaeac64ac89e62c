"""Extracts named files from tar archives, and nothing else."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from keras_attention.data.download import record
from keras_attention.utils.files import atomic_file

CHUNK_BYTES = 1 << 20
DAMAGED = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
# No text compresses better than this: an archive with a larger ratio is malicious.
LARGEST_RATIO = 100
SMALL_BYTES = 1 << 26
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


def check_is_archive(path: Path) -> None:
    """Raise a ValueError unless a file begins like a tar archive, plain or compressed."""
    try:
        with _opened(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.next()
    except DAMAGED as error:
        raise ValueError(
            f"'{path}' is not a tar archive ({error}). Does its address lead to a web page now?"
        ) from error


def extract(path: Path, members: Mapping[str, Path]) -> None:
    """Reads named members of a tar archive into files, with their checksums beside them.

    The archive is read as a stream, to its end, where gzip stores its checksum. The files appear only
    then. Only the members asked for are written, to the paths that the caller gives: no name, link or mode
    in the archive decides where anything is written.

    Args:
        path: The archive.
        members: Path of the file to write, for each member name.

    Raises:
        ValueError: If a member is missing or not a plain file, or the archive is damaged or holds far
            more than its size suggests.
    """
    missing = dict(members)
    limit = max(SMALL_BYTES, LARGEST_RATIO * path.stat().st_size)
    try:
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(_opened(path))
            archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r|"))
            for member in archive:
                if member.offset_data + member.size > limit:
                    raise ValueError(
                        f"'{path}' holds more than {limit:,} bytes, too much for text: '{member.name}' has "
                        f"{member.size:,}. Nothing was kept: get the archive from its original address."
                    )
                target = missing.pop(member.name.removeprefix("./"), None)
                if target is None:
                    continue
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    raise ValueError(
                        f"'{member.name}' in '{path}' is not a plain file but a link, a folder or a "
                        "device. Nothing was read from it: get the archive from its original address."
                    )
                _copy(content, target, stack)
            if missing:
                raise ValueError(f"'{path}' does not hold {', '.join(missing)}.")
            while stream.read(CHUNK_BYTES):  # The padding of the archive.
                pass
    except DAMAGED as error:
        raise ValueError(
            f"'{path}' is damaged ({error}). Delete it, and '{path.name}.sha256' beside it, to "
            "download it again."
        ) from error


def _opened(path: Path) -> IO[bytes]:
    """Open a file, decompressed; `tarfile` itself would not verify gzip's checksum."""
    with open(path, "rb") as file:
        start = file.read(max(map(len, OPENERS)))
    for magic, opener in OPENERS.items():
        if start.startswith(magic):
            return opener(path)
    return open(path, "rb")


def _copy(content: IO[bytes], target: Path, stack: contextlib.ExitStack) -> None:
    """Writes a file that gets its name when the stack is closed without an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    file = stack.enter_context(atomic_file(target))
    while chunk := content.read(CHUNK_BYTES):
        digest.update(chunk)
        file.write(chunk)
    stack.enter_context(_recorded_at_end(target, digest.hexdigest()))


@contextlib.contextmanager
def _recorded_at_end(target: Path, sha256: str) -> Iterator[None]:
    yield
    record(target, sha256)
