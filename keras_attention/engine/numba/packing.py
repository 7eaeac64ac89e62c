"""How weights are stored for the tiles, and rows are brought beside them.

Shape letters: R rows, D depth, F outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from keras_attention.engine.numba import tiles
from keras_attention.engine.numba.llvm import (
    INT,
    LANES,
    LONG,
    ONE,
    SHORT,
    has_amx,
    has_features,
    ir,
    load,
    njit_cached,
    number_at,
    store,
    vectors,
)

LEVELS = 127  # of 8-bit integers, to each side of zero
# Rows that are turned into columns at once.
TRANSPOSED = 4
# Of bytes without sign.
BYTE_ZERO = 128
# The bits of 1e-30, which the largest entry of a row is at least, so that zeros stay zeros.
MIN_ABS_MAX_BITS = np.float32(1e-30).view(np.int32)
# The tile of a precision that some processors have, and LLVM's name for what it needs.
DOTS = {"bfloat16": ("pairs", "avx512bf16"), "int8": ("bytes", "avx512vnni")}


class Kinds(NamedTuple):
    """Empty arrays, whose dtypes tell compiled code which tile to take."""

    rows: np.ndarray
    weights: np.ndarray
    sums: np.ndarray


class Tiling(NamedTuple):
    """How rows are taken together."""

    many: int  # rows of a tile where there are many
    few: int  # and where there are few
    group: int  # rows that lie side by side
    step_bytes: int  # of a group, which a step reads


class Storage:
    """How a product's weights are stored, and how its rows come.

    Args:
        precision: `"float32"`, `"bfloat16"` or `"int8"`.
        native: What only some processors have and may be used where this one has it: `"amx"` for
            bfloat16 and 8-bit integers, `"avx512"` for its extensions for bfloat16 (BF16) and 8-bit
            integers (VNNI). Elsewhere weights are widened as they are read: bfloat16 to float32,
            8-bit integers to 16 bits.

    Attributes:
        kinds: The dtypes of rows, weights and sums.
        tiling: The rows of tiles and groups.
        unit: Positions of the depth that rows and panels have a multiple of.
        short: An empty array of the dtype to which rows are rounded before they are packed.
        kept: An empty array of the dtype of keys and values that later steps read again.
    """

    def __init__(self, precision: str, native: Sequence[str] = ("amx", "avx512")):
        self.precision = precision
        self.kind = _tile_kind(precision, native)
        self.is_amx = self.kind in tiles.AMX_PRODUCTS
        # Positions of the depth that are multiplied at once: short numbers in four bytes.
        self.together = {"bytes": 4, "pairs": 2, "int8": 2}.get(self.kind, 1)
        group, row_bytes, self.unit = tiles.GROUP, 4, tiles.UNROLLED * self.together
        if self.is_amx:
            group, row_bytes = tiles.AMX_ROWS, tiles.AMX_BYTES
            self.unit = row_bytes // tiles.SIZES[precision]
        self.tiling = Tiling(*tiles.tile_rows(self.kind), group, group * row_bytes)
        rows, short = {
            "amx bfloat16": ("uint16", "uint16"),
            "amx int8": ("int8", "int8"),
            "bytes": ("uint32", "uint8"),
            "int8": ("int32", "int16"),
            "pairs": ("int32", "uint16"),
        }.get(self.kind, ("float32", "float32"))
        weights = {"float32": "float32", "bfloat16": "uint16", "int8": "int8"}[precision]
        sums = "int32" if precision == "int8" else "float32"
        self.kinds = Kinds(*(np.empty(0, name) for name in (rows, weights, sums)))
        self.short = np.empty(0, short)
        self.kept = np.empty(0, "uint16" if precision == "bfloat16" else "float32")

    def packed(self, weight: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """A float32 weight (F, D) and bias (F,) as they are stored; F and D are filled up with zeros.

        Returns:
            Panels (panels, steps, ..) of 32 outputs; and, for each panel (32,), what sums start from,
            their scales, and the bias.
        """
        scales = np.ones(len(weight), "float32")
        if bias is None:
            bias = np.zeros(len(weight), "float32")
        if self.precision == "int8":
            scales = np.abs(weight).max(axis=1) / np.float32(LEVELS)
            scales[scales == 0.0] = 1.0
            weight = np.rint(weight / scales[:, None]).astype("int8")
        elif self.precision == "bfloat16":
            weight = weight.astype(ml_dtypes.bfloat16).view("uint16")
        filled = _filled(_filled(weight, 0, tiles.PANEL), 1, self.unit)
        number = len(filled) // tiles.PANEL
        starts = np.zeros((number, tiles.PANEL), self.kinds.sums.dtype)
        if self.is_amx:
            shape = (number, tiles.VECTORS, LANES, -1, LANES, 4 // tiles.SIZES[self.precision])
            panels: np.ndarray = filled.reshape(shape).transpose(0, 3, 1, 4, 2, 5)
        else:
            panels = filled.reshape(number, tiles.PANEL, -1, self.together).transpose(0, 2, 1, 3)
        if self.kind == "bytes":
            starts[:] = -BYTE_ZERO * filled.sum(axis=1, dtype="int32").reshape(starts.shape)
        of_outputs = (
            _filled(part, 0, tiles.PANEL).reshape(number, tiles.PANEL) for part in (scales, bias)
        )
        return np.ascontiguousarray(panels), starts, *of_outputs

    def product(self, packed: tuple[np.ndarray, ...], width: int, depth: int) -> list[int]:
        """The `tiles.PRODUCT` numbers of a packed weight, which must be kept alive."""
        panels, starts, scales, bias = packed
        addresses = [array.ctypes.data for array in (starts, scales, bias)]
        shape = [len(panels), panels.shape[1], panels.strides[0]]
        return [panels.ctypes.data, *shape, *addresses, width, depth]

    def scratch(self, rows: int, depth: int) -> Scratch:
        """Room for packing so many rows of at most this depth."""
        depth += -depth % self.unit
        # AMX may read a last tile of 32 rows.
        groups = rows // self.tiling.group + 2
        size = groups * self.tiling.group * depth
        if not self.is_amx:
            size //= self.together
        short = rows * depth if self.together > 1 else 0
        return Scratch(
            packed=np.empty(size, self.kinds.rows.dtype),
            short=np.empty(short, self.short.dtype),
            scales=np.ones(rows, "float32"),
        )


class Scratch(NamedTuple):
    """Where rows are packed."""

    packed: np.ndarray  # of `Kinds.rows`
    short: np.ndarray  # of `Storage.short`
    scales: np.ndarray  # (R,)


def _tile_kind(precision: str, native: Sequence[str]) -> str:
    """The kind of tile for a precision on this processor."""
    if precision == "float32":
        return precision
    if "amx" in native and has_amx(precision):
        return f"amx {precision}"
    dot, feature = DOTS[precision]
    return dot if "avx512" in native and has_features(feature) else precision


def _filled(array: np.ndarray, axis: int, unit: int) -> np.ndarray:
    """With zeros behind until the axis has a multiple of `unit`."""
    widths = [(0, -size % unit if i == axis else 0) for i, size in enumerate(array.shape)]
    return np.pad(array, widths)


def pack_rows(kinds, tiling, x, begin, depth, first, last, scratch):
    """Rows `first` to `last` of columns of `x` beside each other, as `multiply` reads them.

    The columns are `depth`, from `begin` on. `first` begins a group.
    """


@overload(pack_rows)
def _pack_rows(kinds, tiling, x, begin, depth, first, last, scratch):
    kind = tiles.kind_of(kinds.types[0].dtype, kinds.types[1].dtype)
    if kind in tiles.AMX_PRODUCTS:
        return _pack_for_amx
    return _pack_floats if kind in ("float32", "bfloat16") else _pack_short


def _pack_floats(kinds, tiling, x, begin, depth, first, last, scratch):
    padded = depth + depth % tiles.UNROLLED
    at = x.ctypes.data + 4 * begin
    interleave(at, x.strides[0], depth, padded, first, last, scratch.packed)


def _pack_short(kinds, tiling, x, begin, depth, first, last, scratch):
    """Of 8-bit integers, with their scales, or of bfloat16: two or four numbers in four bytes."""
    size = scratch.short.itemsize
    zero = np.float32(BYTE_ZERO if size == 1 else 0)
    unit = 4 // size * tiles.UNROLLED
    padded = (depth + unit - 1) // unit * unit
    for row in range(first, last):
        output = scratch.short[row * padded : (row + 1) * padded]
        if kinds.weights.itemsize == 1:
            scratch.scales[row] = quantize(x[row, begin : begin + depth], zero, output)
        else:
            output[depth:] = 0
            round_to_bfloat16(x[row, begin:].ctypes.data, output.ctypes.data, depth)
    line = size * padded
    interleave(scratch.short.ctypes.data, line, line // 4, line // 4, first, last, scratch.packed)


def _pack_for_amx(kinds, tiling, x, begin, depth, first, last, scratch):
    """Of 8-bit integers, with their scales, or of bfloat16: 16 rows of 64 bytes for each step."""
    unit = tiles.AMX_BYTES // scratch.packed.itemsize
    steps = (depth + unit - 1) // unit
    for row in range(first, last):
        numbers = x[row, begin : begin + depth]
        if kinds.weights.itemsize == 1:
            scratch.scales[row] = largest_size(numbers) / np.float32(LEVELS)
        factor = ONE / scratch.scales[row]
        into = unit * (row // tiles.AMX_ROWS * steps * tiles.AMX_ROWS + row % tiles.AMX_ROWS)
        for step in range(steps):
            output, part = scratch.packed[into : into + unit], numbers[step * unit :]
            here = min(unit, len(part))
            if kinds.weights.itemsize == 1:
                for d in range(here):
                    output[d] = np.rint(part[d] * factor)
            else:
                round_to_bfloat16(part.ctypes.data, output.ctypes.data, here)
            output[here:] = 0
            into += unit * tiles.AMX_ROWS


@njit_cached()
def interleave(numbers, line, depth, padded, first, last, packed):
    """Rows of four-byte numbers at an address side by side, (groups, `padded`, rows of one).

    Behind `depth` come zeros; behind the last row is anything.
    """
    size = tiles.GROUP
    whole = depth // LANES * LANES
    for begin in range(first, last, size):
        group = begin // size * size * padded
        into = packed.ctypes.data + 4 * group
        number = min(size, last - begin)
        together = number // TRANSPOSED * TRANSPOSED
        for row in range(0, together, TRANSPOSED):
            for d in range(0, whole, LANES):
                at = numbers + (begin + row) * line + 4 * d
                _transpose(at, line, into + 4 * (d * size + row), 4 * size)
        for row in range(number):
            at = numbers + (begin + row) * line
            for d in range(whole if row < together else 0, depth):
                _copy_four_bytes(at + 4 * d, into + 4 * (d * size + row))
        for d in range(depth, padded):
            packed[group + d * size : group + (d + 1) * size] = 0


@intrinsic
def _copy_four_bytes(typing_context, number, output):
    """From one address to another."""

    def generate(context, builder, signature, arguments):
        number, output = arguments
        pointer = builder.inttoptr(output, INT.as_pointer())
        builder.store(load(builder, number, INT), pointer).align = 4
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic
def _transpose(typing_context, rows, line, output, stride):
    """Four rows of 16 numbers of four bytes as 16 rows of four; of addresses and bytes between rows."""

    def generate(context, builder, signature, arguments):
        rows, line, output, stride = arguments
        lanes = ir.VectorType(INT, LANES)

        def at(address: Any, stride: Any, index: int) -> Any:
            return builder.add(address, builder.mul(stride, LONG(index)))

        def mixed(one: Any, other: Any, pairs: Sequence[int]) -> Any:
            # Of each four numbers of both; those of the other vector count from LANES.
            mask = [
                4 * four + place % 4 + place // 4 * LANES for four in range(4) for place in pairs
            ]
            return builder.shuffle_vector(one, other, ir.VectorType(INT, LANES)(mask))

        a, b, c, d = (load(builder, at(rows, line, i), lanes) for i in range(TRANSPOSED))
        ab = [mixed(a, b, (0, 4, 1, 5)), mixed(a, b, (2, 6, 3, 7))]
        cd = [mixed(c, d, (0, 4, 1, 5)), mixed(c, d, (2, 6, 3, 7))]
        for column in range(4):
            places = (0, 1, 4, 5) if column % 2 == 0 else (2, 3, 6, 7)
            columns = mixed(ab[column // 2], cd[column // 2], places)
            for four in range(4):
                mask = ir.VectorType(INT, 4)([*range(4 * four, 4 * four + 4)])
                part = builder.shuffle_vector(columns, columns, mask)
                store(builder, part, at(output, stride, 4 * four + column))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), generate


@intrinsic
def round_to_bfloat16(typing_context, numbers, output, size):
    """The upper halves of float32 at an address, into another: rounded to the nearest, to even in a tie."""

    def generate(context, builder, signature, arguments):
        numbers, output, size = arguments
        integers = ir.VectorType(INT, LANES)

        def all(number: int) -> Any:
            return integers([number] * LANES)

        with vectors(builder, size) as (index, is_there):
            bits = load(builder, number_at(builder, numbers, index, 4), integers, is_there)
            upper = builder.lshr(bits, all(16))
            # To odd numbers half of the last place is added, to even ones a little less.
            rounded = builder.add(builder.add(bits, all(0x7FFF)), builder.and_(upper, all(1)))
            size_bits = builder.and_(bits, all(0x7FFFFFFF))
            is_nan = builder.icmp_unsigned(">", size_bits, all(0x7F800000))
            rounded = builder.select(is_nan, all(0x7FC0), builder.lshr(rounded, all(16)))
            halves = builder.trunc(rounded, ir.VectorType(SHORT, LANES))
            store(builder, halves, number_at(builder, output, index, 2), is_there)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@njit_cached()
def largest_size(numbers):
    """The largest absolute value, 1e-30 at least; NaN if there is one."""
    # As integers, floats without a sign have the same order, and NaN is the largest.
    bits, largest = numbers.view(np.int32), MIN_ABS_MAX_BITS
    for d in range(len(bits)):
        largest = np.int32(max(largest, np.int32(bits[d] & np.int32(0x7FFFFFFF))))
    return np.int32(largest).view(np.float32)


@njit_cached()
def quantize(numbers, zero, output):
    """Writes numbers as integers around `zero`, `zero` behind them; returns their scale.

    The scale of numbers that are not finite is not finite.
    """
    scale = largest_size(numbers) / np.float32(LEVELS)
    factor = ONE / scale
    for d in range(len(numbers)):
        output[d] = np.rint(numbers[d] * factor) + zero
    for d in range(len(numbers), len(output)):
        output[d] = zero
    return scale
