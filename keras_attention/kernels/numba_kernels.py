"""The operations of inference on NumPy arrays, by Numba, on all of a CPU's cores.

Shape letters: R rows, D depth, F outputs, B sentences, N heads, T queries, P places, d width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numba
import numpy as np
from keras import ops

from keras_attention.kernels import numba_tiles as tiles
from keras_attention.kernels.int8 import LEVELS, quantized_weight
from keras_attention.kernels.numba_attention import exponentials
from keras_attention.kernels.numba_tiles import ONE, SUMS, compiled

# Logits that are looked at together.
CHUNK = 256
# Of bytes without sign.
BYTE_ZERO = 128
# The bits of 1e-30, which the largest entry of a row is at least, so that zeros stay zeros.
SMALLEST = np.float32(1e-30).view(np.int32)


class Packed(NamedTuple):
    """A weight (F, D) in panels, as the product of its storage reads them."""

    panels: np.ndarray  # (panels, steps, ..)
    starts: np.ndarray  # (panels, 32), what sums start from
    scales: np.ndarray  # (F,), of the sums


class Storage:
    """How a product's weights are stored, and how its rows come.

    Args:
        precision: `"float32"`, `"bfloat16"` or `"int8"`.
        native: Whether to use what only some processors have, where this one has it: AMX for
            bfloat16, VNNI for 8-bit integers. Elsewhere weights are widened to float32 as they are read.
    """

    def __init__(self, precision: str, native: bool = True):
        self.precision = precision
        self.is_tiled = native and precision == "bfloat16" and tiles.has_amx()
        self.has_bytes = native and precision == "int8" and tiles.has_features("avx512vnni")
        kind = "amx" if self.is_tiled else "bytes" if self.has_bytes else precision
        self._tile_rows = tiles.tile_rows(kind)

    def packed(self, weight: np.ndarray) -> Packed:
        """A float32 weight (F, D) as it is stored; F and D are filled up with zeros."""
        scales = np.ones(len(weight), "float32")
        if self.precision == "int8":
            kernel = ops.convert_to_tensor(np.ascontiguousarray(weight.T))
            integers, scales = map(ops.convert_to_numpy, quantized_weight(kernel))
            weight = integers.T.astype("int8")
        elif self.precision == "bfloat16":
            weight = weight.astype(ml_dtypes.bfloat16).view("uint16")
        depth = weight.shape[1] + -weight.shape[1] % self._depth_unit
        filled = np.zeros((len(weight) + -len(weight) % tiles.PANEL, depth), weight.dtype)
        filled[: len(weight), : weight.shape[1]] = weight
        number = len(filled) // tiles.PANEL
        starts = np.zeros((number, tiles.PANEL), "float32")
        if self.is_tiled:
            parts = filled.reshape(number, 2, tiles.AMX_ROWS, -1, tiles.AMX_DEPTH // 2, 2)
            panels = parts.transpose(0, 3, 1, 4, 2, 5)
        elif self.has_bytes:
            panels = filled.reshape(number, tiles.PANEL, -1, 4).transpose(0, 2, 1, 3)
            starts = -BYTE_ZERO * filled.sum(axis=1, dtype="int32").reshape(number, tiles.PANEL)
        else:
            panels = filled.reshape(number, tiles.PANEL, -1).transpose(0, 2, 1)
        return Packed(np.ascontiguousarray(panels), starts, scales)

    @property
    def _depth_unit(self) -> int:
        """Positions of the depth that a panel has a multiple of."""
        return tiles.AMX_DEPTH if self.is_tiled else tiles.UNROLLED * (4 if self.has_bytes else 1)

    def rows(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (R, D) as the product takes them, filled up, and their scales (R,)."""
        number, depth = x.shape
        depth += -depth % self._depth_unit
        scales = np.ones(number, "float32")
        if self.is_tiled:
            # Room for a last tile of 32 rows.
            shape = (number // tiles.AMX_ROWS + 2, tiles.AMX_ROWS, depth)
            rows = (np.empty if depth == x.shape[1] else np.zeros)(shape, "uint16")
            round_to_bfloat16(x, rows)
            return rows, scales
        if self.precision == "int8":
            integers = np.zeros((number, depth), "uint8" if self.has_bytes else "float32")
            _quantize(x, np.float32(BYTE_ZERO if self.has_bytes else 0.0), integers, scales)
            x = integers.view("uint32") if self.has_bytes else integers
        elif depth > x.shape[1]:
            x = np.pad(x, ((0, 0), (0, depth - x.shape[1])))
        rows = np.empty((-(-number // tiles.GROUP), x.shape[1], tiles.GROUP), x.dtype)
        _interleave(x, rows)
        return rows, scales

    def kept(self, x: np.ndarray) -> np.ndarray:
        """Keys or values as they are kept: in bfloat16 half the memory is read at each step."""
        if self.precision != "bfloat16":
            return np.ascontiguousarray(x)
        kept = np.empty(x.shape, "uint16")
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        round_to_bfloat16(rows, kept.reshape(1, *rows.shape))
        return kept

    def product(
        self, x: np.ndarray, weight: Packed, bias: np.ndarray, relu: bool, outputs: np.ndarray
    ) -> None:
        """`x W^T + bias` of (R, D) into (R, F), with or without ReLU."""
        rows, row_scales = self.rows(x)
        floor = np.float32(0.0 if relu else -np.inf)
        group = tiles.AMX_ROWS if self.is_tiled else tiles.GROUP
        tiles.multiply(rows, row_scales, *weight, bias, floor, *self._tile_rows, group, outputs)


@compiled(parallel=True)
def _interleave(x, groups):
    """Rows (R, D) side by side, (groups, D, rows of one); behind the last row is anything."""
    for group in numba.prange(len(groups)):
        first, output = group * groups.shape[2], groups[group]
        for row in range(min(groups.shape[2], len(x) - first)):
            numbers = x[first + row]
            for d in range(len(numbers)):
                output[d, row] = numbers[d]


@compiled(parallel=True)
def round_to_bfloat16(x, groups):
    """The upper halves of (R, D), rounded to the nearest, to even in a tie; (groups, rows, D)."""
    for row in numba.prange(len(x)):
        bits = x[row].view(np.uint32)
        output = groups[row // groups.shape[1], row % groups.shape[1]]
        for d in range(len(bits)):
            rounded = bits[d] + np.uint32(0x7FFF) + ((bits[d] >> np.uint32(16)) & np.uint32(1))
            is_nan = (bits[d] & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            output[d] = 0x7FC0 if is_nan else rounded >> np.uint32(16)


@compiled()
def _largest_size(numbers):
    """The largest absolute value, 1e-30 at least; NaN if there is one."""
    # As integers, floats without a sign have the same order, and NaN is the largest.
    bits, largest = numbers.view(np.int32), SMALLEST
    for d in range(len(bits)):
        largest = np.int32(max(largest, np.int32(bits[d] & np.int32(0x7FFFFFFF))))
    return np.int32(largest).view(np.float32)


@compiled(parallel=True)
def _quantize(x, zero, integers, scales):
    """Rows (R, D) as integers around `zero`; the scale of one that is not finite is not."""
    for row in numba.prange(len(x)):
        numbers, output = x[row], integers[row]
        scale = _largest_size(numbers) / np.float32(LEVELS)
        factor = ONE / scale
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
