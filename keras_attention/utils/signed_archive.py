"""A checksum in the comment of a zip archive, such as a `.keras` file; other programs ignore it."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

from keras_attention.utils.files import DamagedFile, PathLike

MARK = b"keras_attention sha256 "
DIGITS = 64
# An archive without a comment ends with this and 18 more bytes.
END = b"PK\5\6"
END_SIZE = 22


def sign_archive(path: PathLike) -> None:
    """Add the sha256 of all its other bytes to a zip archive, as written by Keras' `save`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model.zip"
    >>> with zipfile.ZipFile(path, "w") as archive:
    ...     archive.writestr("weights", "1 2 3")
    >>> sign_archive(path)
    >>> verify_archive(path)
    >>> zipfile.ZipFile(path).read("weights")
    b'1 2 3'
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = MARK + b"0" * DIGITS
    with open(path, "rb+") as file:
        digest = _sha256_of_body(file)
        file.seek(-DIGITS, os.SEEK_END)
        file.write(digest.encode())


def verify_archive(path: PathLike, remedy: str = "") -> None:
    """Raise unless a zip archive is intact: unchanged since `sign_archive`, or never signed."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(-min(size, DIGITS + len(MARK)), os.SEEK_END)
        tail = file.read()
        if tail[-END_SIZE:].startswith(END):
            problem = _problem_of_unsigned(path)
        elif tail[:-DIGITS] != MARK:
            problem = "it is cut off or changed"
        elif tail[-DIGITS:].decode("ascii", "replace") != _sha256_of_body(file):
            problem = "it was changed after it was written"
        else:
            problem = None
    if problem:
        raise DamagedFile(f"'{Path(path)}' is damaged: {problem}. {remedy}".strip())


def _sha256_of_body(file: BinaryIO) -> str:
    """Return the hex sha256 of all bytes before the checksum."""
    left = file.seek(0, os.SEEK_END) - DIGITS
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (chunk := file.read(min(left, 2**20))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def _problem_of_unsigned(path: PathLike) -> str | None:
    """Return what is wrong with an unsigned archive, by the checksums of its members; or None."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        return f"it cannot be read ({error})"
    return bad and f"its part '{bad}' was changed"
