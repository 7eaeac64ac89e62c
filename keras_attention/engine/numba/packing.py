"""Packing: how weights are stored in panels, and rows in groups, so that a micro-kernel reads them in order.

Shape letters: R rows, D depth, F outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numba import types
from numba.extending import intrinsic

from keras_attention.engine.numba import tiles
from keras_attention.engine.numba.amx import AMX_BYTES, AMX_ROWS
from keras_attention.engine.numba.compiling import has_amx, has_features, njit
from keras_attention.engine.numba.llvm import INT, LANES, LONG, address, ir, load, store

LEVELS = 127  # of 8-bit integers, to each side of zero
# Relative error of a product of float32, with some room.
ROUNDING = 4e-7
# Matrices that one may be joined of, each with a scale: queries, keys and values.
MOST_SCALES = 3
# Rows that are transposed at once.
TRANSPOSED = 4
# Zero among bytes without sign.
BYTE_ZERO = 128
# The bits of 1e-30, which the largest entry of a row is at least, so that zeros stay zeros.
MIN_ABS_MAX_BITS = np.float32(1e-30).view(np.int32)
# The features that LLVM calls so have a micro-kernel of their own.
AVX512_FEATURES = {"bfloat16": "avx512bf16", "int8": "avx512vnni"}


class Layout(NamedTuple):
    """How rows and weights lie in memory. Compiled code reads the dtypes of the empty arrays."""

    rows: np.ndarray  # with the weights' dtype this selects the micro-kernel
    weights: np.ndarray
    sums: np.ndarray
    kv: np.ndarray  # keys and values in the cache
    large_tile: int  # rows
    small_tile: int
    group: int  # rows
    unit: int  # bytes of a row that lie together in a group
    multiple: int  # of numbers, to which the depth is filled up
    zero: int  # what stands for zero in rows of integers
    prefetches: bool  # whether the weights that come next are prefetched


class PackedRows(NamedTuple):
    """Workspace in which rows are packed."""

    packed: np.ndarray  # int32, groups: (groups, D / unit, rows of a group, unit)
    rounded: np.ndarray  # (R, D), rows in the dtype that is packed, if it is not float32
    scales: np.ndarray  # float32 (R,)


class NotEightBits(ValueError):
    """A weight is not stored in 8 bits without loss."""


class Packing:
    """Stores the weights of one precision, and says how rows are packed beside them.

    Args:
        precision: `"float32"`, `"bfloat16"` or `"int8"`.
        native: The extensions that may be used where the processor has them: `"amx"` for bfloat16 and
            8-bit integers, `"avx512"` for BF16 and VNNI, `"avx2"` for 8-bit integers. Without them weights
            are widened as they are read: bfloat16 to float32, 8-bit integers to 16 bits.
        stored: `"int8"` for float32 with weights that all are 8-bit integers times a scale.

    Attributes:
        kernel: The name of the micro-kernel.
        at_once: How many numbers an instruction multiplies in each lane.
        layout: What compiled code reads.
    """

    def __init__(
        self,
        precision: str,
        native: Sequence[str] = ("amx", "avx512", "avx2"),
        stored: str | None = None,
    ):
        self.precision = precision
        self.kernel = f"{precision} {stored}" if stored else _kernel(precision, native)
        self.is_amx = self.kernel.startswith("amx")
        rows, self._stored, self._rounded, self.at_once = tiles.KERNELS[self.kernel]
        sums = "int32" if precision == "int8" else "float32"
        kv = "uint16" if precision == "bfloat16" else "float32"
        group, unit, multiple = tiles.GROUP, 4, tiles.UNROLLED * self.at_once
        if self.is_amx:
            group, unit, multiple = AMX_ROWS, AMX_BYTES, AMX_BYTES // tiles.SIZES[precision]
        empty = (np.empty(0, dtype) for dtype in (rows, self._stored, sums, kv))
        rows_of_tiles = tiles.tile_rows(self.kernel)
        zero = BYTE_ZERO if self.kernel == "avx512 int8" else 0
        self.layout = Layout._make([*empty, *rows_of_tiles, group, unit, multiple, zero, True])

    def pack_weight(self, weight: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """Pack a float32 weight (F, D) and bias (F,); F and D are filled up with zeros.

        Raises:
            NotEightBits: If it is stored in 8 bits for products of float32, and would be rounded.

        Returns:
            Panels (panels, steps, ..) of 32 outputs; and, for each panel (32,), what sums start from,
            their scales, and the bias.
        """
        scales = np.ones(len(weight), "float32")
        if bias is None:
            bias = np.zeros(len(weight), "float32")
        if self._stored == "int8":
            exact = eight_bit_scales(weight)
            if exact is None and self.precision != "int8":
                raise NotEightBits
            scales = _row_scales(weight) if exact is None else exact
            weight = np.rint(weight / scales[:, None]).astype("int8")
        elif self._stored == "uint16":
            weight = weight.astype(ml_dtypes.bfloat16).view("uint16")
        filled = _filled(_filled(weight, 0, tiles.PANEL), 1, self.layout.multiple)
        count = len(filled) // tiles.PANEL
        starts = np.zeros((count, tiles.PANEL), self.layout.sums.dtype)
        if self.is_amx:
            shape = (count, tiles.VECTORS, LANES, -1, LANES, self.at_once)
            panels: np.ndarray = filled.reshape(shape).transpose(0, 3, 1, 4, 2, 5)
        else:
            panels = filled.reshape(count, tiles.PANEL, -1, self.at_once).transpose(0, 2, 1, 3)
        if self.kernel == "avx512 int8":  # whose rows have no sign: 128 is their zero
            starts[:] = -BYTE_ZERO * filled.sum(axis=1, dtype="int32").reshape(starts.shape)
        per_output = (
            _filled(part, 0, tiles.PANEL).reshape(count, tiles.PANEL) for part in (scales, bias)
        )
        return np.ascontiguousarray(panels), starts, *per_output

    def matrix(self, packed: tuple[np.ndarray, ...], width: int, depth: int) -> list[int]:
        """Return the `tiles.MATRIX` numbers of a packed weight, which must be kept alive."""
        panels, starts, scales, bias = packed
        addresses = [array.ctypes.data for array in (starts, scales, bias)]
        shape = [len(panels), panels.shape[1], panels.strides[0]]
        return [panels.ctypes.data, *shape, *addresses, width, depth]

    def workspace(self, rows: int, depth: int) -> PackedRows:
        """Return the workspace to pack so many rows of at most this depth."""
        depth += -depth % self.layout.multiple
        # A large tile of AMX may read a group behind the last one.
        groups = rows // self.layout.group + 2
        rounded = (rows, depth) if self._rounded != "float32" else (0, 0)
        return PackedRows(
            packed=np.empty(groups * self.layout.group * depth // self.at_once, "int32"),
            rounded=np.empty(rounded, self._rounded),
            scales=np.ones(rows, "float32"),
        )


def _kernel(precision: str, native: Sequence[str]) -> str:
    """Return the name of the micro-kernel for a precision on this processor."""
    if precision != "float32":
        if "amx" in native and has_amx(precision):
            return f"amx {precision}"
        if "avx512" in native and has_features(AVX512_FEATURES[precision]):
            return f"avx512 {precision}"
    # Its instructions are of AVX2; the longer vectors of AVX-512 widen instead.
    is_avx2 = has_features("avx2") and not has_features("avx512bw")
    if precision == "int8" and "avx2" in native and is_avx2:
        return "avx2 int8"
    return precision


def eight_bit_scales(weight: np.ndarray) -> np.ndarray | None:
    """Return scales (F,) of which the rows of a float32 weight (F, D) are multiples, by integers of 8 bits.

    A row has a scale of its own, as in CTranslate2, or shares that of a matrix, as in Marian; matrices may be
    joined. The largest number of each scale is 127 times it. None if there are no such scales.
    """
    scales = _row_scales(weight)
    top = scales.argmax()
    if not _are_multiples(weight[[top]], scales[[top]]).all():
        return None
    if _are_multiples(weight, scales).all():
        return scales
    unknown, shared = np.arange(len(weight)), scales.copy()
    for _ in range(MOST_SCALES):  # The largest one first.
        shared[unknown] = scales[unknown].max()
        unknown = unknown[~_are_multiples(weight[unknown], shared[unknown])]
        if not len(unknown):
            return shared
    return None


def _row_scales(weight: np.ndarray) -> np.ndarray:
    """Return the scale (F,) of each row with which its largest number is 127; of zeros the least there is."""
    least = np.finfo("float32").tiny
    return np.maximum(np.abs(weight).max(axis=1, initial=0.0) / np.float32(LEVELS), least)


def _are_multiples(weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return of which rows (F, D) all numbers are integers times a scale (F,), up to rounding."""
    levels = weight / scales[:, None]
    near = np.abs(levels - np.rint(levels)) <= ROUNDING * np.abs(levels)
    return near.all(axis=1)


def _filled(array: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    """Fill an axis up with zeros to a multiple of so many."""
    widths = [(0, -size % multiple if i == axis else 0) for i, size in enumerate(array.shape)]
    return np.pad(array, widths)


@njit
def pack_rows(layout, workspace, x, begin, depth, rows):
    """Pack the columns from `begin` to `begin + depth` of rows of x (R, ..) for `tiles.multiply`.

    They are rounded to the micro-kernel's dtype first. `rows` are the first, which begins a group, and last.
    """
    first, last = rows
    filled = (depth + layout.multiple - 1) // layout.multiple * layout.multiple
    rounded = workspace.rounded
    zero = np.float32(layout.zero)
    if len(rounded) == 0:
        interleave(x.view(np.int32), begin, depth, filled, first, last, workspace.packed)
        return
    for row in range(first, last):
        numbers, output = x[row, begin : begin + depth], rounded[row, :filled]
        if layout.weights.itemsize == 1:
            workspace.scales[row] = quantize(numbers, zero, output)
        else:
            round_to_bfloat16(numbers, output)
            output[depth:] = 0
    words, count = rounded.view(np.int32), filled * rounded.itemsize // 4
    if layout.unit == 4:
        interleave(words, 0, count, count, first, last, workspace.packed)
    else:
        interleave_units(words, count, first, last, layout.group, workspace.packed)


@njit
def interleave_units(words, depth, first, last, group, packed):
    """Copy rows of four-byte words into groups (depth / 16, rows of a group, 16)."""
    for row in range(first, last):
        into = row // group * group * depth + row % group * LANES
        for begin in range(0, depth, LANES):
            for d in range(LANES):
                packed[into + d] = words[row, begin + d]
            into += group * LANES


@njit
def interleave(words, begin, depth, filled, first, last, packed):
    """Copy columns of rows of four-byte words into groups (`filled`, rows of a group).

    Behind `depth` come zeros; behind the last row is anything.
    """
    size = tiles.GROUP
    in_vectors = depth // LANES * LANES
    for group_first in range(first, last, size):
        into = group_first * filled
        count = min(size, last - group_first)
        transposed = count // TRANSPOSED * TRANSPOSED
        for row in range(0, transposed, TRANSPOSED):
            for d in range(0, in_vectors, LANES):
                start = address(words, group_first + row, begin + d)
                output = packed.ctypes.data + 4 * (into + d * size + row)
                _transpose(start, words.strides[0], output, 4 * size)
        for row in range(count):
            for d in range(in_vectors if row < transposed else 0, depth):
                packed[into + d * size + row] = words[group_first + row, begin + d]
        for d in range(depth, filled):
            packed[into + d * size : into + (d + 1) * size] = 0


@intrinsic
def _transpose(typing_context, rows, stride, output, output_stride):
    """Write four rows of 16 four-byte words as 16 rows of four; of addresses and bytes between rows."""

    def generate(context, builder, signature, arguments):
        rows, stride, output, output_stride = arguments
        vector = ir.VectorType(INT, LANES)

        def row_at(address: Any, stride: Any, row: int) -> Any:
            return builder.add(address, builder.mul(stride, LONG(row)))

        def interleaved(one: Any, other: Any) -> Any:
            count = one.type.count
            mask = [i + side for i in range(count) for side in (0, count)]
            return builder.shuffle_vector(one, other, ir.VectorType(INT, 2 * count)(mask))

        a, b, c, d = (load(builder, row_at(rows, stride, row), vector) for row in range(TRANSPOSED))
        words = interleaved(interleaved(a, c), interleaved(b, d))
        for row in range(LANES):
            mask = ir.VectorType(INT, TRANSPOSED)([TRANSPOSED * row + i for i in range(TRANSPOSED)])
            part = builder.shuffle_vector(words, words, mask)
            store(builder, part, row_at(output, output_stride, row))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), generate


@njit
def round_to_bfloat16(numbers, output):
    """Round float32 to bfloat16, to the nearest, to even in a tie: write the upper halves."""
    bits = numbers.view(np.uint32)
    for d in range(len(bits)):
        # To odd numbers half of the last place is added, to even ones a little less.
        odd = np.uint32((bits[d] >> np.uint32(16)) & np.uint32(1))
        rounded = np.uint32(bits[d] + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        is_nan = np.uint32(bits[d] & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        output[d] = np.uint32(0x7FC0) if is_nan else np.uint32(rounded)


@njit
def abs_max(numbers):
    """Return the largest absolute value, 1e-30 at least; NaN if there is one."""
    # As integers, floats without a sign have the same order, and NaN is the largest.
    bits, largest = numbers.view(np.int32), MIN_ABS_MAX_BITS
    for d in range(len(bits)):
        largest = np.int32(max(largest, np.int32(bits[d] & np.int32(0x7FFFFFFF))))
    return np.int32(largest).view(np.float32)


@njit
def quantize(numbers, zero, output):
    """Write numbers as integers around `zero`, and `zero` behind them; return their scale.

    The scale of numbers that are not finite is not finite.
    """
    scale = abs_max(numbers) / np.float32(LEVELS)
    factor = np.float32(1.0) / scale
    for d in range(len(numbers)):
        output[d] = np.rint(numbers[d] * factor) + zero
    for d in range(len(numbers), len(output)):
        output[d] = zero
    return scale
