"""The variables in CTranslate2's `model.bin`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from keras_attention.interop.foreign import Arrays, BinaryFile

# Versions of the file, and of the names in it, that are read.
VERSIONS = range(2, 7)
REVISIONS = range(2, 100)
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
# Older versions wrote only the size of a number.
TYPE_OF_SIZE = {4: "float32", 2: "int16", 1: "int8"}
OLD_SCALE = 1000.0  # of 16-bit integers without a scale of their own
MOST_AXES = 8
LEAST_BYTES = 8  # that a variable has in the file


class Variables(Arrays):
    """The variables of a model: of each its type, its shape and its bytes; `name` is the model's class."""

    def __init__(self, file: BinaryFile, name: str) -> None:
        super().__init__({}, file.error)
        self.name = name
        self.aliases: dict[str, str] = {}

    def has(self, name: str) -> bool:
        return super().has(self.aliases.get(name, name))

    def scalar(self, name: str, default: float | None = None) -> float | None:
        """Return a number, an int if it was stored as one."""
        if not self.has(name):
            return default
        values = self._stored(name)
        if values.size != 1:
            raise self.error(f"{name!r} should be a number, but has the shape {values.shape}")
        value = values.ravel()[0].item()
        if not math.isfinite(value):
            raise self.error(f"{name!r} is {value}")
        return value

    def widened(self, name: str) -> np.ndarray:
        values = self._stored(name)
        if not values.ndim:
            raise self.error(f"{name!r} is a number")
        if values.dtype.kind != "i":
            return values.astype("float32", copy=False)
        scale_name = f"{self.aliases.get(name, name)}_scale"
        if not self.has(scale_name) and values.dtype != "int16":
            raise self.error(f"it holds no scale of {name!r}")
        scale = self._stored(scale_name) if self.has(scale_name) else OLD_SCALE
        scale = np.asarray(scale, "float32").ravel()
        if scale.size not in (1, len(values)) or not (np.isfinite(scale) & (scale != 0)).all():
            raise self.error(f"the scale of {name!r} does not fit")
        return values.astype("float32") / scale.reshape(-1, *[1] * (values.ndim - 1))

    def refuse_unread(self, ignored: str = "") -> None:
        """Do so, but for flags that are off."""
        self._read |= {
            name for name, (*_, data) in self.values.items() if data.size <= 4 and not data.any()
        }
        super().refuse_unread(ignored)

    def _stored(self, name: str) -> np.ndarray:
        stored = self.aliases.get(name, name)
        self._read.add(stored)
        dtype, shape, data = self.values[stored]
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
    variables = Variables(file, name)
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
            variables.aliases[alias] = name
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
    variables.values[name] = dtype, shape, file.take(size, repr(name))


def _name(file: BinaryFile, what: str) -> str:
    (size,) = file.numbers("<H", what)
    return file.text(size, what)
