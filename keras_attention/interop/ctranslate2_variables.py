"""The variables in CTranslate2's `model.bin`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_attention.interop.foreign import BinaryFile
from keras_attention.utils.files import DamagedFile

# Versions of the file, and of the names in it, that are read.
VERSIONS = range(2, 7)
REVISIONS = range(2, 100)
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
# Older versions wrote only the size of a number.
TYPE_OF_SIZE = {4: "float32", 2: "int16", 1: "int8"}
OLD_SCALE = 1000.0  # of 16-bit integers without a scale of their own
MOST_AXES = 8
LEAST_BYTES = 8  # that a variable has in the file


class Variables:
    """The variables of a model. Nothing is converted before it is asked for.

    Attributes:
        name: The class of the model.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._stored: dict[str, tuple[str, tuple[int, ...], np.ndarray]] = {}
        self._aliases: dict[str, str] = {}
        self._read: set[str] = set()

    def add(self, name: str, dtype: str, shape: tuple[int, ...], data: np.ndarray) -> None:
        """Add a variable whose size was checked."""
        self._stored[name] = dtype, shape, data

    def add_alias(self, alias: str, name: str) -> None:
        """Add another name of a variable."""
        self._aliases[alias] = name

    def has(self, name: str) -> bool:
        """Whether there is a variable of this name."""
        return self._aliases.get(name, name) in self._stored

    def unfit(self, problem: str) -> ValueError:
        """Return an error that names the file."""
        return ValueError(f"'{self.path}' holds no model that can be represented: {problem}.")

    def scalar(self, name: str, default: float | None = None) -> float | None:
        """Return a number, an int if it was stored as one."""
        if not self.has(name):
            return default
        dtype, shape, _ = self._stored[self._aliases.get(name, name)]
        if math.prod(shape) != 1:
            raise self._damaged(f"{name!r} should be a number, but has the shape {shape}")
        value = self._values(name).ravel()[0].item()
        if not math.isfinite(value):
            raise self._damaged(f"{name!r} is {value}")
        return value

    def array(self, name: str) -> np.ndarray:
        """Return a variable in float32."""
        if not self.has(name):
            raise self._damaged(f"it holds no {name!r}")
        stored = self._aliases.get(name, name)
        values = self._values(name)
        if not values.ndim:
            raise self._damaged(f"{name!r} is a number")
        if values.dtype.kind != "i":
            return values.astype("float32", copy=False)
        scale_name = next((n for n in (f"{name}_scale", f"{stored}_scale") if self.has(n)), None)
        if scale_name is None and values.dtype != "int16":
            raise self._damaged(f"it holds no scale of {name!r}")
        scale = np.float32(OLD_SCALE) if scale_name is None else self._values(scale_name)
        scale = np.asarray(scale, "float32").ravel()
        if scale.size not in (1, len(values)) or not (np.isfinite(scale) & (scale != 0)).all():
            raise self._damaged(f"the scale of {name!r} does not fit")
        return values.astype("float32") / scale.reshape(-1, *[1] * (values.ndim - 1))

    def optional(self, name: str) -> np.ndarray | None:
        """Return a variable in float32; None if there is none."""
        return self.array(name) if self.has(name) else None

    def matrix(self, name: str) -> np.ndarray:
        """Return a variable of two axes."""
        array = self.array(name)
        if array.ndim != 2:
            raise self._damaged(f"{name!r} should be a matrix, but has the shape {array.shape}")
        return array

    def table(self, names: Iterable[str]) -> np.ndarray:
        """Return the weight of the first of these layers that there is."""
        names = list(names)
        return self.matrix(f"{next(filter(self._has_weight, names), names[0])}/weight")

    def unread(self, ignored: Iterable[str]) -> list[str]:
        """Return the variables that nobody asked for, but for flags that are off and ignored last parts."""
        left = self._stored.keys() - self._read
        return sorted(
            name
            for name in left
            if name.rpartition("/")[2] not in ignored
            and not (self._stored[name][2].size <= 4 and not self._stored[name][2].any())
        )

    def _has_weight(self, layer: str) -> bool:
        return self.has(f"{layer}/weight")

    def _damaged(self, problem: str) -> DamagedFile:
        return DamagedFile(f"'{self.path}' is damaged: {problem}. Download it again.")

    def _values(self, name: str) -> np.ndarray:
        stored = self._aliases.get(name, name)
        self._read.add(stored)
        dtype, shape, data = self._stored[stored]
        if dtype == "bfloat16":  # the upper half of a float32
            return (data.view("<u2").astype("uint32") << 16).view("float32").reshape(shape)
        return data.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)


def read_variables(path: Path) -> Variables:
    """Read all variables of a `model.bin`, and check that all sizes in it fit together."""
    file = BinaryFile(path)
    (version,) = file.numbers("<I", "the header")
    if version not in VERSIONS:
        raise file.error(
            f"it has the format version {version}; read are {VERSIONS[0]} to {VERSIONS[-1]}. Is it a model "
            "of CTranslate2? If it is newer or older, convert it again"
        )
    name = _name(file, "the name of its class")
    (revision,) = file.numbers("<I", "the header")
    if revision not in REVISIONS:
        raise file.error(f"it has the revision {revision}, which is not read")
    variables = Variables(path, name)
    (count,) = file.numbers("<I", "the header")
    if count * LEAST_BYTES > file.left:
        raise file.error(f"{count:,} variables do not fit into it")
    for index in range(count):
        _read_variable(file, variables, f"variable {index}", version)
    if version >= 3:
        (count,) = file.numbers("<I", "the number of other names")
        for _ in range(count):
            alias, name = _name(file, "another name"), _name(file, "another name")
            if variables.has(alias) or not variables.has(name):
                raise file.error(f"{alias!r} cannot be another name of {name!r}")
            variables.add_alias(alias, name)
    if file.left:
        raise file.error(f"it has {file.left:,} bytes too many")
    return variables


def _read_variable(file: BinaryFile, variables: Variables, what: str, version: int) -> None:
    name = _name(file, what)
    (axes,) = file.numbers("<B", what)
    if axes > MOST_AXES:
        raise file.error(f"{name!r} has {axes} axes")
    shape = file.numbers(f"<{axes}I", f"the shape of {name!r}")
    kind, length = file.numbers("<BI", f"the size of {name!r}")
    if version >= 4:
        dtype = TYPES[kind] if kind < len(TYPES) else ""
    else:
        dtype, length = TYPE_OF_SIZE.get(kind, ""), length * kind
    if not dtype:
        raise file.error(f"{name!r} has the type {kind}, which is not known")
    size = math.prod(shape) * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)
    if not size or length != size:
        raise file.error(f"{name!r} {shape} of {dtype} should have {size:,} bytes, not {length:,}")
    if variables.has(name):
        raise file.error(f"it holds {name!r} twice")
    variables.add(name, dtype, shape, file.take(size, repr(name)))


def _name(file: BinaryFile, what: str) -> str:
    (size,) = file.numbers("<H", what)
    return file.text(size, what)
