"""Single files out of tar archives, and nothing else of what they hold."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from keras_attention.data.download import record
from keras_attention.utils.files import atomic_file

CHUNK_BYTES = 1 << 20
DAMAGED = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


def check_is_archive(path: Path) -> None:
    """Raises ValueError unless a file begins as a tar archive does, plain or compressed."""
    try:
        with tarfile.open(path, "r|*") as archive:
            archive.next()
    except DAMAGED as error:
        raise ValueError(
            f"'{path}' is no tar archive ({error}). Does its address lead to a web page now?"
        ) from error


def extract(path: Path, members: Mapping[str, Path]) -> None:
    """Reads named members of a tar archive into files, with their checksums beside them.

    The archive is read as a stream. Only the members asked for are read, and they go where the
    caller says: no name, link or mode in the archive decides where anything is written.

    Args:
        path: the archive.
        members: file to write for each member name.

    Raises:
        ValueError: a member is absent or not a plain file, or the archive is damaged.
    """
    missing = dict(members)
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                target = missing.pop(member.name.removeprefix("./"), None)
                if target is None:
                    continue
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    raise ValueError(
                        f"'{member.name}' in '{path}' is no plain file but a link, a folder or a "
                        "device. Nothing was read from it: get the archive from its own address."
                    )
                _copy(content, target)
                if not missing:
                    return
    except DAMAGED as error:
        raise ValueError(
            f"'{path}' is damaged ({error}). Delete it, and '{path.name}.sha256' beside it, to "
            "download it again."
        ) from error
    raise ValueError(f"'{path}' does not hold {', '.join(missing)}.")


def _copy(content: IO[bytes], target: Path) -> None:
    """Writes the file beside its place; it gets its name when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with atomic_file(target) as file:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
        record(target, digest.hexdigest())
