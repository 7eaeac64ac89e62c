"""The operations of inference on NumPy arrays, by Numba, on all of a CPU's cores.

Shape letters: R rows, D depth, F outputs, B sentences, N heads, T queries, P places, d width of a head.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import ml_dtypes
import numba
import numpy as np

from keras_attention.kernels import numba_tiles as tiles
from keras_attention.kernels.int8 import LEVELS, quantized_weight

# Sums may be formed in any order, that is, in vectors.
SUMS = {"reassoc", "contract", "nsz"}
# A position with a bias below this is not looked at.
UNSEEN = np.float32(-1e4)
# Rows of a tile where there are this few.
FEW_ROWS = 4
# Logits that are looked at together.
CHUNK = 256
# Of bytes without sign.
BYTE_ZERO = 128
# The bits of 1e-30, which the largest entry of a row is at least, so that zeros stay zeros.
SMALLEST = np.float32(1e-30).view(np.int32)
# exp(x) by powers of 2 (the constants of Cephes' expf).
LOWEST = np.float32(-87.0)
LOG2_E = np.float32(1.44269504)
LN_2, LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
HALF, ONE = np.float32(0.5), np.float32(1.0)
C5, C4, C3 = np.float32(1.9875691e-4), np.float32(1.3981999e-3), np.float32(8.3334519e-3)
C2, C1, C0 = np.float32(4.1665796e-2), np.float32(0.16666666), np.float32(0.5)


def _compiled(parallel: bool = False, fastmath: Any = False) -> Any:
    return numba.njit(parallel=parallel, fastmath=fastmath, error_model="numpy", nogil=True)


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
        # Without AVX-512 registers are fewer, or shorter.
        many, few = (tiles.GROUP, FEW_ROWS) if tiles.has_features("avx512f") else (2, 2)
        if self.is_tiled:
            self.multiply = _product(tiles.AMX_ROWS, 2 * tiles.AMX_ROWS, tiles.AMX_ROWS, "amx")
        else:
            kind = "bytes" if self.has_bytes else precision
            self.multiply = _product(tiles.GROUP, many, few, kind)

    def packed(self, weight: np.ndarray) -> Packed:
        """A float32 weight (F, D) as it is stored; F and D are filled up with zeros."""
        scales = np.ones(len(weight), "float32")
        if self.precision == "int8":
            integers, scales = (np.asarray(part) for part in quantized_weight(weight.T))
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
            # One more than needed where the last tile has 32 rows.
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
            return x
        kept = np.empty(x.shape, "uint16")
        rows = x.reshape(-1, x.shape[-1])
        round_to_bfloat16(rows, kept.reshape(1, *rows.shape))
        return kept

    def product(
        self, x: np.ndarray, weight: Packed, bias: np.ndarray, relu: bool, outputs: np.ndarray
    ) -> None:
        """`x W^T + bias` of (R, D) into (R, F), with or without ReLU."""
        rows, row_scales = self.rows(x)
        floor = np.float32(0.0 if relu else -np.inf)
        self.multiply(rows, row_scales, *weight, bias, floor, outputs)


@functools.cache
def _product(group: int, many: int, few: int, kind: str) -> Any:
    """`row_scales (starts + x W^T) scales + bias`, at least `floor`; in tiles of so many rows."""
    special = {"amx": tiles.amx_tile, "bytes": tiles.byte_tile}
    make = special.get(kind) or functools.partial(tiles.float_tile, kind)
    tile_of_many, tile_of_few = make(many), make(few)
    panel_width, sum_type = tiles.PANEL, np.int32 if kind == "bytes" else np.float32

    @_compiled(parallel=True)
    def multiply(x, row_scales, panels, starts, scales, bias, floor, outputs):
        rows, width = outputs.shape
        steps = panels.shape[1]
        for panel in numba.prange(len(panels)):
            sums = np.empty((many, panel_width), sum_type)
            first = panel * panel_width
            here = min(panel_width, width - first)
            panel_scales, panel_bias = scales[first : first + here], bias[first : first + here]
            weight = panels.ctypes.data + panel * panels.strides[0]
            start = starts.ctypes.data + panel * starts.strides[0]
            row = 0
            while row < rows:
                at = x.ctypes.data + row // group * x.strides[0] + row % group * 4
                number = many
                if rows - row > few:
                    tile_of_many(at, weight, steps, start, sums.ctypes.data)
                else:
                    tile_of_few(at, weight, steps, start, sums.ctypes.data)
                    number = few
                for i in range(min(number, rows - row)):
                    scale, output = row_scales[row + i], outputs[row + i, first : first + here]
                    for j in range(here):
                        total = np.float32(sums[i, j]) * (scale * panel_scales[j]) + panel_bias[j]
                        output[j] = floor if total < floor else total
                row += number

    return multiply


@_compiled(parallel=True)
def _interleave(x, groups):
    """Rows (R, D) side by side, (groups, D, rows of one); behind the last row is anything."""
    for group in numba.prange(len(groups)):
        first, output = group * groups.shape[2], groups[group]
        for row in range(min(groups.shape[2], len(x) - first)):
            numbers = x[first + row]
            for d in range(len(numbers)):
                output[d, row] = numbers[d]


@_compiled(parallel=True)
def round_to_bfloat16(x, groups):
    """The upper halves of (R, D), rounded to the nearest, to even in a tie; (groups, rows, D)."""
    for row in numba.prange(len(x)):
        bits = x[row].view(np.uint32)
        output = groups[row // groups.shape[1], row % groups.shape[1]]
        for d in range(len(bits)):
            rounded = bits[d] + np.uint32(0x7FFF) + ((bits[d] >> np.uint32(16)) & np.uint32(1))
            is_nan = (bits[d] & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            output[d] = 0x7FC0 if is_nan else rounded >> np.uint32(16)


@_compiled()
def _largest_size(numbers):
    """The largest absolute value, 1e-30 at least; NaN if there is one."""
    # As integers, floats without a sign have the same order, and NaN is the largest.
    bits, largest = numbers.view(np.int32), SMALLEST
    for d in range(len(bits)):
        largest = np.int32(max(largest, np.int32(bits[d] & np.int32(0x7FFFFFFF))))
    return np.int32(largest).view(np.float32)


@_compiled(parallel=True)
def _quantize(x, zero, integers, scales):
    """Rows (R, D) as integers around `zero`; the scale of one that is not finite is not."""
    for row in numba.prange(len(x)):
        numbers, output = x[row], integers[row]
        scale = _largest_size(numbers) / np.float32(LEVELS)
        factor = ONE / scale
        for d in range(len(numbers)):
            output[d] = np.rint(numbers[d] * factor) + zero
        scales[row] = scale


@numba.njit(fastmath=SUMS, inline="always")
def _exp(x):
    """Of a number that is not positive; PyTorch and TensorFlow have it in vectors, a loop of Numba's not."""
    x = max(x, LOWEST)
    power = np.floor(x * LOG2_E + HALF)
    x = x - power * LN_2 - power * LN_2_REST
    polynomial = ((((C5 * x + C4) * x + C3) * x + C2) * x + C1) * x + C0
    bits = np.int32(np.int32(np.int32(power) + np.int32(127)) << np.int32(23))
    return (polynomial * x * x + x + ONE) * bits.view(np.float32)


@_compiled(fastmath=SUMS)
def _exponentials(row, largest):
    """Replaces numbers by `exp(number - largest)`; returns their sum."""
    total = np.float32(0.0)
    for i in range(len(row)):
        row[i] = _exp(row[i] - largest)
        total += row[i]
    return total


def attend(query: Any, key: Any, value: Any, bias: Any, outputs: Any) -> None:
    """Attention of (B, T, N, d) over the first P places of (B, .., N, d), into (B, T, N, d').

    Keys and values are float32 or bfloat16, `bias` (B, 1 or T, P) is 0, or so low that the place is not
    seen; who sees none gets zeros.
    """
    stored = "bfloat16" if key.dtype == np.uint16 else "float32"
    _attention(query.shape[3], value.shape[3], stored)(query, key, value, bias, outputs)


@functools.cache
def _attention(key_dim: int, value_dim: int, stored: str) -> Any:
    """`attend` for heads of these widths."""
    scores_of_places = tiles.scores_of_places(key_dim, stored)
    sum_over_places = tiles.sum_over_places(value_dim, stored)

    @_compiled(parallel=True)
    def attention(query, key, value, bias, outputs):
        rows, length, heads, _ = query.shape
        for task in numba.prange(rows * heads):
            row, head = task // heads, task % heads
            one = np.empty(key_dim, np.float32)
            weights, seen = np.empty(bias.shape[2], np.float32), np.empty(bias.shape[2], np.int64)
            keys = key.ctypes.data + row * key.strides[0] + head * key.strides[2]
            values = value.ctypes.data + row * value.strides[0] + head * value.strides[2]
            output = outputs.ctypes.data + row * outputs.strides[0] + head * outputs.strides[2]
            number = 0
            for t in range(length):
                if t < bias.shape[1]:  # else all see the same
                    number = _seen(bias[row, t], seen)
                for d in range(key_dim):
                    one[d] = query[row, t, head, d]
                at = weights.ctypes.data
                scores_of_places(
                    one.ctypes.data, keys, key.strides[1], seen.ctypes.data, number, at
                )
                _softmax(weights[:number])
                sum_over_places(at, values, value.strides[1], seen.ctypes.data, number, output)
                output += outputs.strides[1]

    return attention


@_compiled()
def _seen(biases, places):
    """Writes the places that are seen; returns their number."""
    number = 0
    for place in range(len(biases)):
        places[number] = place
        number += biases[place] > UNSEEN
    return number


@_compiled(fastmath=SUMS)
def _softmax(scores):
    largest = np.float32(-np.inf)
    for i in range(len(scores)):
        largest = max(largest, scores[i])
    factor = ONE / _exponentials(scores, largest)
    for i in range(len(scores)):
        scores[i] *= factor


@_compiled(parallel=True, fastmath=SUMS)
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


@_compiled()
def _has_above(numbers, limit):
    """Looks at all of them, in vectors."""
    count = 0
    for i in range(len(numbers)):
        count += numbers[i] > limit
    return count > 0


@_compiled(parallel=True)
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
        normalizer = largest + np.log(_exponentials(numbers, largest))
        for slot in range(width):
            found[slot] -= normalizer
