"""Files of drafts: arrays by name, of which nothing is believed before it is checked."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from keras_attention.utils.checks import check_path
from keras_attention.utils.files import DamagedFile, atomic_file

Draft = TypeVar("Draft")
ERRORS = (KeyError, ValueError, OverflowError, EOFError, zipfile.BadZipFile)


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write a file that `read_draft` reads; an existing one is replaced."""
    with atomic_file(check_path("path", path)) as file:
        np.savez(file, **arrays)


def read_draft(
    path: str | os.PathLike[str], make: Callable[[dict[str, np.ndarray]], Draft], maker: str
) -> Draft:
    """Return what a function makes of a file's arrays.

    Args:
        path: The file.
        make: Makes a draft; what it raises of `ERRORS` says that the file is none.
        maker: What makes a new file, for the message.

    Raises:
        DamagedFile: If the file holds something else.
    """
    path = check_path("path", path)
    try:
        return make(_read_arrays(path))
    except ERRORS as error:
        raise DamagedFile(
            f"'{path}' is no draft, or is damaged: {error}. {maker} makes a new one."
        ) from None


def _read_arrays(path: Any) -> dict[str, np.ndarray]:
    """Read a file of uncompressed arrays of numbers, whose sizes its headers say rightly."""
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.compress_type != zipfile.ZIP_STORED or part.flag_bits & 1:
                raise ValueError(f"'{part.filename}' is packed or encrypted")
            with archive.open(part) as file:
                np.lib.format.read_magic(file)
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                size = math.prod(shape) * dtype.itemsize + file.tell()
            if size != part.file_size or dtype.kind not in "if":
                raise ValueError(f"'{part.filename}' is not the array that it should be")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
