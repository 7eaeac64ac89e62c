"""The operations of inference on NumPy arrays, by Numba, on all of a CPU's cores.

Shape letters: R rows, D depth, F outputs, B sentences, N heads, T queries, P places, d width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numba
import numpy as np
from keras import ops
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from keras_attention.engine.numba import tiles as tiles
from keras_attention.engine.numba.attention import exponentials
from keras_attention.engine.numba.tiles import FLOAT, INT, LANES, LONG, ONE, SHORT, SUMS, compiled
from keras_attention.ops.int8 import LEVELS, quantized_weight

# Logits that are looked at together.
CHUNK = 256
# Rows that are turned into columns at once.
TRANSPOSED = 4
# Of bytes without sign.
BYTE_ZERO = 128
# The bits of 1e-30, which the largest entry of a row is at least, so that zeros stay zeros.
SMALLEST = np.float32(1e-30).view(np.int32)
# The tile of a precision that some processors have, and LLVM's name for what it needs.
DOTS = {"bfloat16": ("pairs", "avx512bf16"), "int8": ("bytes", "avx512vnni")}


class Packed(NamedTuple):
    """A weight (F, D) and a bias (F,) in panels, as the product of its storage reads them."""

    panels: np.ndarray  # (panels, steps, ..)
    starts: np.ndarray  # (panels, 32), what sums start from
    scales: np.ndarray  # (panels, 32), of the sums
    bias: np.ndarray  # (panels, 32)


class Storage:
    """How a product's weights are stored, and how its rows come.

    Args:
        precision: `"float32"`, `"bfloat16"` or `"int8"`.
        native: What only some processors have and may be used where this one has it: `"amx"` for
            bfloat16 and 8-bit integers, `"avx512"` for its extensions for bfloat16 (BF16) and 8-bit
            integers (VNNI). Elsewhere weights are widened to float32 as they are read.
    """

    def __init__(self, precision: str, native: Sequence[str] = ("amx", "avx512")):
        self.precision = precision
        self.kind = _tile_kind(precision, native)
        self._is_tiled = self.kind in tiles.AMX_PRODUCTS
        self._tile_rows = tiles.tile_rows(self.kind)
        # Positions of the depth that are multiplied at once: instructions for short numbers take four bytes.
        self._together = 1 if self.kind == precision else 4 // tiles.SIZES[precision]
        # Rows of a group, and positions of the depth that rows and panels have a multiple of.
        self._group, self._unit = tiles.GROUP, tiles.UNROLLED * self._together
        if self._is_tiled:
            self._group, self._unit = tiles.AMX_ROWS, tiles.AMX_BYTES // tiles.SIZES[precision]
        self._ones = np.ones(0, "float32")

    def packed(self, weight: np.ndarray, bias: np.ndarray) -> Packed:
        """A float32 weight (F, D) and bias (F,) as they are stored; F and D are filled up with zeros."""
        scales = np.ones(len(weight), "float32")
        if self.precision == "int8":
            kernel = ops.convert_to_tensor(np.ascontiguousarray(weight.T))
            integers, scales = map(ops.convert_to_numpy, quantized_weight(kernel))
            weight = integers.T.astype("int8")
        elif self.precision == "bfloat16":
            weight = weight.astype(ml_dtypes.bfloat16).view("uint16")
        filled = _filled(_filled(weight, 0, tiles.PANEL), 1, self._unit)
        number = len(filled) // tiles.PANEL
        starts = np.zeros((number, tiles.PANEL), "float32")
        if self._is_tiled:
            shape = (number, tiles.VECTORS, tiles.LANES, -1, tiles.LANES, self._together)
            panels: np.ndarray = filled.reshape(shape).transpose(0, 3, 1, 4, 2, 5)
            starts = starts.astype("int32" if self.precision == "int8" else "float32")
        else:
            panels = filled.reshape(number, tiles.PANEL, -1, self._together).transpose(0, 2, 1, 3)
        if self.kind == "bytes":
            starts = -BYTE_ZERO * filled.sum(axis=1, dtype="int32").reshape(number, tiles.PANEL)
        of_outputs = (
            _filled(part, 0, tiles.PANEL).reshape(number, tiles.PANEL) for part in (scales, bias)
        )
        return Packed(np.ascontiguousarray(panels), starts, *of_outputs)

    def rows(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (R, D) as the product takes them, filled up, and their scales (R,)."""
        number, depth = x.shape
        steps = -(-depth // self._unit)
        empty = np.empty if depth == steps * self._unit else np.zeros
        if self._is_tiled:
            # Room for a last tile of 32 rows.
            shape = (number // self._group + 2, steps, self._group, self._unit)
            if self.precision == "bfloat16":
                blocks = empty(shape, "uint16")
                round_to_bfloat16(x, blocks)
                return blocks, self._scales_of_one(number)
            return _quantized(x, empty(shape, "int8"), 0)
        scales = self._scales_of_one(number)
        shape = (1, 1, number, steps * self._unit)
        if self.kind == "bytes":
            blocks, scales = _quantized(x, empty(shape, "uint8"), BYTE_ZERO)
            x = blocks[0, 0].view("uint32")
        elif self.kind == "pairs":
            blocks = empty(shape, "uint16")
            round_to_bfloat16(x, blocks)
            x = blocks[0, 0].view("int32")
        elif self.precision == "int8":
            blocks, scales = _quantized(x, empty(shape, "float32"), 0)
            x = blocks[0, 0]
        elif depth < shape[3]:
            x = _filled(x, 1, self._unit)
        groups = np.empty((-(-number // self._group), x.shape[1], self._group), x.dtype)
        _interleave(x, groups)
        return groups, scales

    def _scales_of_one(self, number: int) -> np.ndarray:
        if len(self._ones) < number:
            self._ones = np.ones(number, "float32")
        return self._ones[:number]

    def kept(self, x: np.ndarray) -> np.ndarray:
        """Keys or values (B, T, N, d) as they are kept: in bfloat16 half the memory is read at each step."""
        if self.precision != "bfloat16":
            return x
        kept = np.empty(x.shape, "uint16")
        rows = x.reshape(len(x) * x.shape[1], -1)
        round_to_bfloat16(rows, kept.reshape(1, 1, *rows.shape))
        return kept

    def product(self, x: np.ndarray, weight: Packed, relu: bool, outputs: np.ndarray) -> None:
        """`x W^T + bias` of (R, D) into (parts, R, F / parts), with or without ReLU."""
        floor = np.float32(0.0 if relu else -np.inf)
        rows, row_scales = self.rows(x)
        # Numba's own function for their number keeps what calls it from being stored on disk.
        threads = numba.config.NUMBA_NUM_THREADS
        tiles.multiply(
            rows, row_scales, *weight, floor, *self._tile_rows, self._group, threads, outputs
        )


def _tile_kind(precision: str, native: Sequence[str]) -> str:
    """The kind of tile for a precision on this processor."""
    if precision == "float32":
        return precision
    if "amx" in native and tiles.has_amx(precision):
        return f"amx {precision}"
    dot, feature = DOTS[precision]
    return dot if "avx512" in native and tiles.has_features(feature) else precision


def _quantized(x: np.ndarray, blocks: np.ndarray, zero: int) -> tuple[np.ndarray, np.ndarray]:
    scales = np.empty(len(x), "float32")
    _quantize(x, np.float32(zero), blocks, scales)
    return blocks, scales


def _filled(array: np.ndarray, axis: int, unit: int) -> np.ndarray:
    """With zeros behind until the axis has a multiple of `unit`."""
    widths = [(0, -size % unit if i == axis else 0) for i, size in enumerate(array.shape)]
    return np.pad(array, widths)


@compiled(parallel=True)
def _interleave(x, groups):
    """Rows (R, D) side by side, (groups, D, rows of one); behind the last row is anything."""
    _, depth, size = groups.shape
    numbers, line, output = x.ctypes.data, x.strides[0], groups.ctypes.data
    whole = depth // LANES * LANES
    for group in numba.prange(len(groups)):
        first = group * size
        into = output + group * groups.strides[0]
        number = min(size, len(x) - first)
        together = number // TRANSPOSED * TRANSPOSED
        for row in range(0, together, TRANSPOSED):
            for d in range(0, whole, LANES):
                at = numbers + (first + row) * line + 4 * d
                _transpose(at, line, into + 4 * (d * size + row), 4 * size)
        for row in range(number):
            for d in range(whole if row < together else 0, depth):
                groups[group, d, row] = x[first + row, d]


@intrinsic
def _transpose(typing_context, rows, line, output, stride):
    """Four rows of 16 numbers of four bytes as 16 rows of four; of addresses and bytes between rows."""

    def generate(context, builder, signature, arguments):
        rows, line, output, stride = arguments
        lanes = ir.VectorType(FLOAT, LANES)

        def at(address: Any, stride: Any, index: int) -> Any:
            return builder.add(address, builder.mul(stride, LONG(index)))

        def mixed(one: Any, other: Any, pairs: Sequence[int]) -> Any:
            # Of each four numbers of both; those of the other vector count from LANES.
            mask = [
                4 * four + place % 4 + place // 4 * LANES for four in range(4) for place in pairs
            ]
            return builder.shuffle_vector(one, other, ir.VectorType(INT, LANES)(mask))

        a, b, c, d = (tiles.load(builder, at(rows, line, i), lanes) for i in range(TRANSPOSED))
        ab = [mixed(a, b, (0, 4, 1, 5)), mixed(a, b, (2, 6, 3, 7))]
        cd = [mixed(c, d, (0, 4, 1, 5)), mixed(c, d, (2, 6, 3, 7))]
        for column in range(4):
            places = (0, 1, 4, 5) if column % 2 == 0 else (2, 3, 6, 7)
            columns = mixed(ab[column // 2], cd[column // 2], places)
            for four in range(4):
                mask = ir.VectorType(INT, 4)([*range(4 * four, 4 * four + 4)])
                part = builder.shuffle_vector(columns, columns, mask)
                tiles.store(builder, part, at(output, stride, 4 * four + column))
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), generate


@compiled(parallel=True)
def round_to_bfloat16(x, blocks):
    """The upper halves of (R, D), rounded to the nearest, to even in a tie.

    Into blocks (groups, steps, rows of a group, positions of a step); `_quantize`, too.
    """
    _, _, group, width = blocks.shape
    numbers, output = x.ctypes.data, blocks.ctypes.data
    for row in numba.prange(len(x)):
        at = numbers + row * x.strides[0]
        into = output + row // group * blocks.strides[0] + row % group * blocks.strides[2]
        for first in range(0, x.shape[1], width):
            _round(at + 4 * first, into, min(width, x.shape[1] - first))
            into += blocks.strides[1]


@intrinsic
def _round(typing_context, numbers, output, size):
    """Of numbers at an address, into another."""

    def generate(context, builder, signature, arguments):
        numbers, output, size = arguments
        integers = ir.VectorType(INT, LANES)

        def all(number: int) -> Any:
            return integers([number] * LANES)

        with tiles.vectors(builder, size) as (index, is_there):
            bits = tiles.load(
                builder, tiles.number_at(builder, numbers, index, 4), integers, is_there
            )
            upper = builder.lshr(bits, all(16))
            # To odd numbers half of the last place is added, to even ones a little less.
            rounded = builder.add(builder.add(bits, all(0x7FFF)), builder.and_(upper, all(1)))
            size_bits = builder.and_(bits, all(0x7FFFFFFF))
            is_nan = builder.icmp_unsigned(">", size_bits, all(0x7F800000))
            rounded = builder.select(is_nan, all(0x7FC0), builder.lshr(rounded, all(16)))
            halves = builder.trunc(rounded, ir.VectorType(SHORT, LANES))
            tiles.store(builder, halves, tiles.number_at(builder, output, index, 2), is_there)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@compiled()
def _largest_size(numbers):
    """The largest absolute value, 1e-30 at least; NaN if there is one."""
    # As integers, floats without a sign have the same order, and NaN is the largest.
    bits, largest = numbers.view(np.int32), SMALLEST
    for d in range(len(bits)):
        largest = np.int32(max(largest, np.int32(bits[d] & np.int32(0x7FFFFFFF))))
    return np.int32(largest).view(np.float32)


@compiled(parallel=True)
def _quantize(x, zero, blocks, scales):
    """Rows (R, D) as integers around `zero`; the scale of one that is not finite is not."""
    _, _, group, width = blocks.shape
    for row in numba.prange(len(x)):
        scale = _largest_size(x[row]) / np.float32(LEVELS)
        factor = ONE / scale
        for first in range(0, x.shape[1], width):
            numbers = x[row, first : first + width]
            output = blocks[row // group, first // width, row % group]
            for d in range(len(numbers)):
                output[d] = np.rint(numbers[d] * factor) + zero
        scales[row] = scale


@compiled(parallel=True, fastmath=SUMS)
def normalize(x, update, gamma, beta, epsilon, outputs):
    """Layer normalisation of the sum of (R, D) and (R, D)."""
    depth = np.float32(x.shape[1])
    for row in numba.prange(len(x)):
        numbers, others, output = x[row], update[row], outputs[row]
        mean = np.float32(0.0)
        for d in range(len(numbers)):
            output[d] = numbers[d] + others[d]
            mean += output[d]
        mean /= depth
        variance = np.float32(0.0)
        for d in range(len(numbers)):
            variance += (output[d] - mean) * (output[d] - mean)
        factor = ONE / np.sqrt(variance / depth + epsilon)
        for d in range(len(numbers)):
            output[d] = (output[d] - mean) * factor * gamma[d] + beta[d]


@compiled()
def _has_above(numbers, limit):
    """Looks at all of them, in vectors."""
    count = 0
    for i in range(len(numbers)):
        count += numbers[i] > limit
    return count > 0


@compiled(parallel=True)
def best(logits, values, ids):
    """The largest of each row (R, V) as log-probabilities, and where, (R, width) each, best first.

    Ties go to the lower id. The logits are overwritten.
    """
    width = values.shape[1]
    for row in numba.prange(len(logits)):
        numbers, found, places = logits[row], values[row], ids[row]
        found[:] = -np.inf
        places[:] = 0
        for start in range(0, len(numbers), CHUNK):
            chunk = numbers[start : start + CHUNK]
            if _has_above(chunk, found[width - 1]):
                for i in range(len(chunk)):
                    slot = width
                    while slot and chunk[i] > found[slot - 1]:
                        slot -= 1
                        if slot < width - 1:
                            found[slot + 1], places[slot + 1] = found[slot], places[slot]
                        found[slot], places[slot] = chunk[i], start + i
        largest = found[0]
        normalizer = largest + np.log(exponentials(numbers, largest))
        for slot in range(width):
            found[slot] -= normalizer
