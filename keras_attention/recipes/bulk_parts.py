"""The results of chunks as files: the first line says what a file holds, with a checksum of all of it."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

from keras_attention.utils.signed_json import DamagedFile

PARTS = "parts"
HEADER = re.compile(
    rb"keras_attention part, first line (\d+), lines (\d+), sha256 ([0-9a-f]{64})\n"
)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some lines of one input, which are processed together.

    Attributes:
        number, file, first: Its number among all chunks, that of the input and of its first line, from 0.
        lines: Number of lines.
    """

    number: int
    file: int
    first: int
    lines: int


def part_folder(number: int) -> str:
    """Return the folder of the results of an input's chunks."""
    return f"{PARTS}/{number:05d}"


def part_path(chunk: Chunk) -> str:
    """Return the file of a chunk's result."""
    return f"{part_folder(chunk.file)}/{chunk.first:012d}"


def packed_part(chunk: Chunk, content: bytes) -> bytes:
    """Return the file of a chunk's result."""
    sha256 = _sha256(chunk.file, chunk.first, chunk.lines, content)
    header = (
        f"keras_attention part, first line {chunk.first}, lines {chunk.lines}, sha256 {sha256}\n"
    )
    return header.encode() + content


def unpacked_part(content: bytes, place: Any, chunk: Chunk | None = None) -> bytes:
    """Return the result in such a file, whose path ends with the number of the input and of the first line.

    A DamagedFile says that it was cut off or changed, or is the result of another chunk.
    """
    header = HEADER.match(content)
    file, name = (int(part) if part.isdigit() else -1 for part in str(place).split("/")[-2:])
    if header is None:
        problem = "it is not the result of a chunk, or another version wrote it"
    else:
        first, lines, body = int(header[1]), int(header[2]), content[header.end() :]
        if _sha256(file, first, lines, body) != header[3].decode():
            problem = "it was cut off or changed"
        elif first != name or (chunk is not None and (first, lines) != (chunk.first, chunk.lines)):
            problem = f"it is of {lines} lines from {first} on"
        else:
            return body
    raise DamagedFile(
        f"'{place}' is damaged: {problem}. Delete it: the same command makes it again."
    )


def check_part(path: Path) -> None:
    """Raise DamagedFile unless a file is the intact result of a chunk."""
    unpacked_part(path.read_bytes(), path.as_posix())


def _sha256(file: int, first: int, lines: int, content: bytes) -> str:
    return hashlib.sha256(f"{file} {first} {lines}\n".encode() + content).hexdigest()
