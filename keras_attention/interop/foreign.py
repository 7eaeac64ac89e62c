"""What all imports share: files of others read with care, and parts of a spec made from their matrices.

Shape letters: N heads, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.spec import parts
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.checks import shown
from keras_attention.utils.files import DamagedFile, json_bytes

# What positions a model has: those that it was trained with, or those that another program computes.
POSITIONS = ("as_trained", "as_transformers")


class BinaryFile:
    """Reads a binary file from front to back, and never takes more memory than the file has bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.stat().st_size == 0:
            raise DamagedFile(f"'{path}' is damaged: it is empty.")
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self._offset = 0

    @property
    def left(self) -> int:
        """Number of bytes after those that were read."""
        return len(self._bytes) - self._offset

    def take(self, size: int, what: str) -> np.ndarray:
        """Return the next bytes, without a copy; `what` names them in the error message."""
        if size > self.left:
            raise self.error(
                f"{what} should have {size:,} bytes at byte {self._offset:,}, but {self.left:,} are left"
            )
        self._offset += size
        return self._bytes[self._offset - size : self._offset]

    def numbers(self, format: str, what: str) -> tuple[int, ...]:
        """Return the next numbers, in a format of `struct`."""
        return struct.unpack(format, self.take(struct.calcsize(format), what).tobytes())

    def text(self, size: int, what: str) -> str:
        """Return the next bytes as text, without the zero at its end."""
        return self.decoded(self.take(size, what), what)

    def decoded(self, content: np.ndarray, what: str) -> str:
        """Return bytes as text, without the zero at its end."""
        try:
            return content.tobytes().rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is no text") from None

    def error(self, problem: str) -> DamagedFile:
        """Return an error that names the file."""
        return DamagedFile(f"'{self.path}' is damaged: {problem}. Download it again.")


class Arrays:
    """Named arrays of another program, and which of them were read.

    Args:
        values: The arrays by name, or what `widened` reads.
        error: Makes an error, which names the file, of what is wrong.
    """

    def __init__(self, values: Mapping[str, Any], error: Callable[[str], ValueError]) -> None:
        self.values, self.error = {**values}, error
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self.values

    def widened(self, name: str) -> np.ndarray:
        """Return an array that is there, in float32."""
        return np.asarray(self.values[name], "float32")

    def array(self, name: str, axes: int | None = None) -> np.ndarray:
        """Return an array, if it is said of so many axes, in float32."""
        if not self.has(name):
            raise self.error(f"it has no {name!r}, which such a model has")
        self._read.add(name)
        value = self.widened(name)
        if value.ndim != (axes or value.ndim) or not value.size:
            raise self.error(f"{name!r} should have {axes} axes, but has the shape {value.shape}")
        return value

    def optional(self, name: str, axes: int | None = None) -> np.ndarray | None:
        """Return an array; None if there is none."""
        return self.array(name, axes) if self.has(name) else None

    def first(self, names: Sequence[str]) -> np.ndarray:
        """Return the first matrix that there is; they are one, under several names."""
        self._read.update(names)
        return self.array(next(filter(self.has, names), names[0]), 2)

    def refuse_unread(self, ignored: str = "") -> None:
        """Raise for an array that nobody has asked for, unless this regular expression matches its name."""
        unread = self.values.keys() - self._read
        if further := sorted(name for name in unread if not re.fullmatch(ignored, name)):
            raise parts.SpecError(
                f"it has further arrays, such as {further[:3]}, of which nothing is known"
            )


class TorchArrays(Arrays):
    """Weights of PyTorch's layers."""

    def dense(self, name: str) -> parts.DenseSpec:
        """Return the `Linear` of this name."""
        kernel = np.ascontiguousarray(self.array(f"{name}.weight", 2).T)
        return parts.DenseSpec(kernel, self.optional(f"{name}.bias", 1))

    def norm(self, name: str, epsilon: float) -> parts.NormSpec:
        """Return the `LayerNorm` of this name."""
        return parts.NormSpec(
            self.array(f"{name}.weight", 1), self.array(f"{name}.bias", 1), epsilon
        )

    def depth(self, layers: str) -> int:
        """Return the number of layers, whose names begin with `layers`, a dot and their number."""
        inside = (name for name in self.values if name.startswith(f"{layers}."))
        numbers = {name.removeprefix(layers).split(".")[1] for name in inside}
        return next(i for i in range(len(numbers) + 1) if str(i) not in numbers)


def read_foreign_json(path: Path, kind: type) -> Any:
    """Read a JSON file of another program, which must hold a dict or a list."""
    content = json_bytes(path)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"'{path}' is damaged: it is no JSON ({error}).") from None
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise DamagedFile(f"'{path}' must hold {expected}. Received: {type(value).__name__}")
    return value


def read_foreign_text(path: Path) -> str:
    """Read a text file of another program, which must be UTF-8."""
    try:
        return json_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DamagedFile(f"'{path}' is damaged: it is no UTF-8 text ({error}).") from None


class Settings:
    """Settings of another program's file, whose types are checked when they are asked for."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self.values, self.path = {**values}, path
        self._places: dict[str, Path] = {}

    @classmethod
    def of_file(cls, path: Path) -> Settings:
        """Return the settings in a JSON file; none if it is missing."""
        return cls(read_foreign_json(path, dict) if path.is_file() else {}, path)

    def update(self, values: Mapping[str, Any], path: Path) -> None:
        """Take the settings of a further file, those that are not null."""
        known = {name: value for name, value in values.items() if value is not None}
        self.values |= known
        self._places |= dict.fromkeys(known, path)

    def place(self, name: str) -> Path:
        """Return the file that has a setting."""
        return self._places.get(name, self.path)

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a setting; `default` if it is absent or null."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(
                f"'{self.place(name)}': {name!r} must be of type {kind.__name__}. Received: {shown(value)}"
            )
        return value

    def number(self, name: str, default: int | None = None, least: int = 1) -> int:
        """Return an integer setting of at least `least`."""
        value = self.get(name, int, default)
        if value < least:
            raise ValueError(
                f"'{self.place(name)}': {name!r} must be at least {least}. Received: {value}"
            )
        return value

    def refuse_unless(self, expected: Mapping[str, Any]) -> None:
        """Raise a ValueError for a setting that is there and is not what it must be."""
        for name, value in expected.items():
            received = self.values.get(name, value)
            if received != value:
                raise ValueError(
                    f"'{self.place(name)}': a model with {name}={received!r} cannot be represented; it must "
                    f"be {value!r}."
                )


def attention_of(maps: Sequence[parts.DenseSpec], num_heads: int) -> parts.AttentionSpec:
    """Return attention from the flat maps (D, N K) of query, key, value, and the output's (N U, D)."""
    sizes = [*(part.kernel.shape[1] for part in maps[:3]), maps[3].kernel.shape[0]]
    if uneven := [size for size in sizes if size % num_heads]:
        raise parts.SpecError(f"{num_heads} heads do not divide a width of {uneven[0]}")
    query, key, value = (
        parts.DenseSpec(
            part.kernel.reshape(-1, num_heads, size // num_heads),
            None if part.bias is None else part.bias.reshape(num_heads, size // num_heads),
        )
        for part, size in zip(maps[:3], sizes, strict=False)
    )
    kernel = maps[3].kernel
    output = parts.DenseSpec(kernel.reshape(num_heads, -1, kernel.shape[1]), maps[3].bias)
    return parts.AttentionSpec(query, key, value, output)


def flat_parts(attention: parts.AttentionSpec, width: int) -> list[parts.DenseSpec]:
    """Return what `attention_of` reads: the maps of queries, keys, values, and of the joined heads.

    All heads get one width. Narrower ones are filled up with zeros, which changes no product.
    """
    maps = []
    for part in (attention.query, attention.key, attention.value):
        missing = width - part.kernel.shape[2]
        kernel = np.pad(part.kernel, ((0, 0), (0, 0), (0, missing)))
        bias = None if part.bias is None else np.pad(part.bias, ((0, 0), (0, missing))).ravel()
        maps.append(parts.DenseSpec(kernel.reshape(len(kernel), -1), bias))
    kernel = attention.output.kernel
    kernel = np.pad(kernel, ((0, 0), (0, width - kernel.shape[1]), (0, 0)))
    return [*maps, parts.DenseSpec(kernel.reshape(-1, kernel.shape[2]), attention.output.bias)]


def with_row(table: parts.EmbeddingSpec) -> parts.EmbeddingSpec:
    """Return a table with one more token, whose embedding, softmax column and bias are zero."""
    softmax, bias = table.reverse_embeddings, table.logits_bias
    return dataclasses.replace(
        table,
        embeddings=np.pad(table.embeddings, ((0, 1), (0, 0))),
        reverse_embeddings=None if softmax is None else np.pad(softmax, ((0, 0), (0, 1))),
        logits_bias=None if bias is None else np.pad(bias, (0, 1)),
    )


def permute_hidden(spec: TransformerSpec, order: np.ndarray) -> TransformerSpec:
    """Return the same model, of arrays, with the hidden dimensions in the order of these old indices (D,)."""
    # Both go through the weights in the same order.
    fields = (field for field in parts.weight_fields(spec) if field.value is not None)

    def permuted(weight: np.ndarray) -> np.ndarray:
        letters = next(fields).shape
        for axis in (axis for axis, letter in enumerate(letters) if letter == "D"):
            weight = np.take(weight, order, axis)
        return weight

    return parts.map_weights(spec, permuted)


def as_transformers(spec: TransformerSpec) -> TransformerSpec:
    """Return the model, of NumPy arrays, with the positions that transformers computes for Marian's models.

    They have the paper's frequencies, sines first. With hidden dimensions in another order, that is the
    layout `"interleaved"`.
    """
    if spec.hidden_dim % 2:
        raise parts.SpecError(
            f"its width {spec.hidden_dim} is odd, so `positions` must be 'as_trained'"
        )
    order = np.arange(spec.hidden_dim).reshape(2, -1).T.ravel()
    spec = permute_hidden(spec, order)
    stacks = {
        kind: dataclasses.replace(getattr(spec, kind), positions=parts.PositionsSpec("interleaved"))
        for kind in ("encoder", "decoder")
    }
    return dataclasses.replace(spec, **stacks)


def checked(make: Callable[[], TransformerSpec], path: Path) -> TransformerSpec:
    """Return a spec that is complete and finite; errors name the file that it comes from."""
    try:
        spec = make()
        spec.validate()
    except parts.SpecError as error:
        raise ValueError(f"'{path}' holds no model that can be represented: {error}") from None
    try:
        parts.check_finite(spec.weights())
    except parts.NonFiniteModel as error:
        raise DamagedFile(f"'{path}' is damaged, or its model has diverged: {error}") from None
    return spec
