"""Files of drafts: arrays by name, of which nothing is believed before it is checked."""

from __future__ import annotations

import abc
import math
import os
import zipfile
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

from keras_attention.utils.checks import check_path
from keras_attention.utils.files import DamagedFile, atomic_file

Draft = TypeVar("Draft")
ERRORS = (KeyError, ValueError, OverflowError, EOFError, zipfile.BadZipFile)


class SavedDraft(abc.ABC):
    """A draft that is saved as arrays by name."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Return all arrays that `of_arrays` needs, by name."""

    @classmethod
    @abc.abstractmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Return the draft of a file's arrays; raise one of `ERRORS` if they are none."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads, such as `"draft.npz"`; an existing one is replaced."""
        with atomic_file(check_path("path", path)) as file:
            np.savez(file, **self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote. Nothing in it is executed.

        Raises:
            DamagedFile: If it holds something else.
        """
        return read_draft(path, cls.of_arrays, f"`{cls.__name__}.train`")


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
