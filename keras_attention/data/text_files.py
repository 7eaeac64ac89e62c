"""Text files as they come: packed or not, from a disk or from a pipe."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import dataclasses
import functools
import gzip
import importlib
import io
import lzma
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from keras_attention.utils.checks import check_path
from keras_attention.utils.files import DamagedFile, naming_errors

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Packing:
    """A kind of compression, known by the first bytes of a file, not by its name."""

    name: str  # what messages call it
    suffix: str  # the usual end of a name
    magic: bytes  # the first bytes
    # Takes a file that is open to read, and returns one with the unpacked bytes.
    open: Callable[[IO[bytes]], Any]


def _open_zstd(file: IO[bytes]) -> Any:
    for library in ("compression.zstd", "backports.zstd", "pyzstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(library).ZstdFile(file)
    raise ValueError(
        "it is packed by Zstandard, which Python reads from 3.14 on, and before that with "
        "`pip install backports.zstd`. Or unpack it, with `zstd -d`"
    )


PACKINGS = (
    Packing("gzip", ".gz", b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    Packing("bzip2", ".bz2", b"BZh", bz2.BZ2File),
    Packing("xz", ".xz", b"\xfd7zXZ\x00", lzma.LZMAFile),
    Packing("Zstandard", ".zst", b"\x28\xb5\x2f\xfd", _open_zstd),
)
# What no text begins with, and what to do with it.
NO_TEXT = {
    b"PK\x03\x04": "a zip archive, as .xlsx and .docx files are, too: unpack it, or export it as text",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it",
    b"Rar!\x1a\x07": "a rar archive: unpack it",
    b"LZIP\x01": "packed by lzip: unpack it, with `lzip -d`",
    b"\x5d\x00\x00": "packed by lzma: unpack it, with `xz -d`",
    b"\x04\x22\x4d\x18": "packed by lz4: unpack it, with `lz4 -d`",
    b"\x1f\x9d": "packed by compress: unpack it, with `uncompress`",
    b"%PDF-": "a PDF file: export it as text",
    codecs.BOM_UTF16_LE: "UTF-16: convert it, with `iconv -f utf-16 -t utf-8`",
    codecs.BOM_UTF16_BE: "UTF-16: convert it, with `iconv -f utf-16 -t utf-8`",
}
# What has fields or marks beside its sentences, by the ending of its name, and what to do with it.
NO_LINES = {
    ".csv": "pick the fields with a few lines of Python",
    ".jsonl": "pick the fields with a few lines of Python",
    ".tmx": "export its texts from your translation tool",
    ".sgm": "take what is inside its <seg> marks",
}
LANGUAGE_ENDING = re.compile(r"[a-z]{2}([-_][A-Za-z]{2,4})?|[a-z]{3}_[A-Z][a-z]{3}")
UNPACKING_ERRORS = (EOFError, zlib.error, lzma.LZMAError, OSError)
LONGEST_MAGIC = 8
CHUNK_BYTES = 1 << 20
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257


def packing_of(start: bytes) -> Packing | None:
    """Return the kind of compression of a file with these first bytes; None if it is not packed."""
    return next((packing for packing in PACKINGS if start.startswith(packing.magic)), None)


@contextlib.contextmanager
def damage_named(name: PathLike, packing: Packing | None) -> Iterator[None]:
    """Turn the errors of unpacking into a ValueError that names the file and its kind."""
    try:
        yield
    except Exception as error:
        # Each library of Zstandard has an error of its own.
        is_damage = isinstance(error, UNPACKING_ERRORS) or type(error).__name__ == "ZstdError"
        # The system's own errors have a number, those about the content have none.
        if packing is None or not is_damage or getattr(error, "errno", None) is not None:
            raise
        raise DamagedFile(f"'{name}' is a damaged {packing.name} file: {error}") from error


def check_packed(path: PathLike, name: PathLike | None = None) -> None:
    """Read a packed file to its end, where its checksum is; what is not packed has none."""
    with open(path, "rb") as file:
        packing = packing_of(file.peek(LONGEST_MAGIC))
        if packing is not None and packing.open is not _open_zstd:  # That may need a package.
            with damage_named(name or path, packing):
                for _ in iter(functools.partial(packing.open(file).read, CHUNK_BYTES), b""):
                    pass


def read_lines(path: PathLike) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file: plain, or packed by gzip, bzip2, xz or Zstandard.

    The content says how it is packed, not the name. Only "\n" and "\r\n" end a line, not the other
    characters that `str.splitlines` splits at. A byte order mark at the start is dropped; nothing else is
    changed or normalised.

    Raises:
        ValueError: If the file is not UTF-8 (the message names line and byte), contains NUL, as UTF-16
            does, is damaged, or is no text but an archive, a table or the like.
    """
    with open(check_path("path", path), "rb") as file:
        yield from lines_of(file, path)


def lines_of(file: io.BufferedReader, name: PathLike) -> Iterator[str]:
    """Like `read_lines`, for a file that is open at its start; `name` is used in error messages."""
    if remedy := NO_LINES.get(Path(unpacked_name(str(name))).suffix.lower()):
        raise ValueError(
            f"'{name}' has no plain sentences, one in each line, as its ending says: {remedy}, and write "
            "one sentence per line, or pairs with a tab between them (`corpus_from_tsv`). A plain text of "
            "this name has to be renamed."
        )
    start = file.peek(LONGEST_MAGIC)
    for magic, what in NO_TEXT.items():
        if start.startswith(magic):
            raise ValueError(f"'{name}' is no text but {what}.")
    packing = packing_of(start)
    stream: Any = file
    if packing is not None:
        try:
            stream = packing.open(file)
        except ValueError as error:
            raise ValueError(f"'{name}' cannot be read: {error}.") from None
    with damage_named(name, packing):
        for number, line in enumerate(stream, start=1):
            if number == 1:
                if line.startswith(TAR_MAGIC, TAR_MAGIC_AT):
                    raise ValueError(f"'{name}' is no text but a tar archive: unpack it.")
                line = line.removeprefix(codecs.BOM_UTF8)
                if b"\r" in line.rstrip(b"\r\n") and not line.endswith(b"\n"):
                    raise ValueError(
                        f"'{name}' ends its lines by CR alone, as old Macintosh programs did, and would be "
                        "one line. Convert it, with `tr '\\r' '\\n'`."
                    )
            yield _decode(line, number, name).removesuffix("\n").removesuffix("\r")


def _decode(line: bytes, number: int, path: PathLike) -> str:
    if b"\0" in line:
        raise ValueError(
            f"'{path}', line {number}, holds a NUL character. Is the file UTF-16? Convert it, for example "
            "with `iconv -f utf-16 -t utf-8`."
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"'{path}', line {number}, byte {error.start + 1} of the line: "
            f"0x{line[error.start]:02X} is not UTF-8 here. "
            "Convert the file, for example with `iconv -f latin1 -t utf-8`."
        ) from error


def existing_file(path: PathLike) -> Path:
    """Return the path of a file that can be read any number of times.

    That is the path itself. A pipe, such as the `/dev/fd/63` of a shell's `<(zcat a.gz)`, can be read once:
    it is copied to a temporary file, which is deleted when the process ends.
    """
    path = check_path("path", path)
    if path.is_file():
        return path
    if is_pipe(path):
        return _copied(path)
    what = "is a folder" if path.is_dir() else "is a device" if path.exists() else "does not exist"
    raise FileNotFoundError(f"'{path}' {what}; a text file, plain or packed, was expected.")


def is_pipe(path: Path) -> bool:
    """Whether a path is a pipe, which can be read only once."""
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


def _copied(pipe: Path) -> Path:
    folder = tempfile.mkdtemp(dir=_temporary_folder().name)
    copy = Path(folder, "-".join(pipe.parts[1:]) or pipe.name)
    with naming_errors(copy), open(pipe, "rb") as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    return copy


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="keras_attention-")


def unpacked_name(name: str) -> str:
    """Return the name of a file without the ending that says how it is packed.

    >>> unpacked_name("train.en.gz"), unpacked_name("train.en")
    ('train.en', 'train.en')
    """
    for packing in PACKINGS:
        name = name.removesuffix(packing.suffix)
    return name


def language_of_file(path: PathLike) -> str | None:
    """Return the language code that a file's name ends with; None if it ends with none.

    Of codes with three letters, only those with a script are told from other endings, such as .txt.

    >>> language_of_file("train.pt.gz"), language_of_file("dev.zho_Hans"), language_of_file("a.txt")
    ('pt', 'zho_Hans', None)
    """
    ending = Path(unpacked_name(Path(path).name)).suffix.removeprefix(".")
    return ending if LANGUAGE_ENDING.fullmatch(ending) else None


def packed_or_plain(path: Path) -> Path | None:
    """Return the file of that name with ".gz" or the like at the end, or without; None if there is none."""
    names = [f"{path.name}{packing.suffix}" for packing in PACKINGS]
    candidates = (path.with_name(name) for name in (*names, path.name))
    return next((file for file in candidates if file.is_file()), None)
