"""Attention for decoding by Numba: each query looks at the places that it sees, and at no others.

The loop over the places of a head of 64 numbers, the paper's, is written in LLVM's language: a query, and
the sum of the values, stay in registers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from keras_attention.kernels.numba_tiles import (
    FLOAT,
    LONG,
    ONE,
    STORED,
    SUMS,
    as_float,
    compiled,
    load,
    multiply_add,
    splat,
)

# Of a head, in the paper's models.
COMMON_WIDTH = 64
# A place with a bias below this is not looked at.
UNSEEN = np.float32(-1e4)
# exp(x) by powers of 2 (the constants of Cephes' expf).
LOWEST = np.float32(-87.0)
LOG2_E = np.float32(1.44269504)
LN_2, LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
HALF = np.float32(0.5)
C5, C4, C3 = np.float32(1.9875691e-4), np.float32(1.3981999e-3), np.float32(8.3334519e-3)
C2, C1, C0 = np.float32(4.1665796e-2), np.float32(0.16666666), np.float32(0.5)


@intrinsic
def _common_scores(typing_context, kept, query, keys, place_bytes, places, number, scores):
    """Scores of a query with the keys at places; of addresses, but for the type of what is kept."""
    stored = _stored(kept)

    def generate(context, builder, signature, values):
        _, query, keys, place_bytes, places, number, scores = values
        vector = ir.VectorType(FLOAT, COMMON_WIDTH)
        total = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(FLOAT, [FLOAT, vector]),
            f"llvm.vector.reduce.fadd.v{COMMON_WIDTH}f32",
        )
        query = load(builder, query, vector)
        with cgutils.for_range(builder, number) as loop:
            key = _kept_at(builder, keys, place_bytes, places, loop.index, stored)
            products = builder.fmul(query, key)
            score = builder.call(total, [FLOAT(0.0), products], fastmath=("reassoc",))
            address = builder.add(scores, builder.mul(loop.index, LONG(4)))
            builder.store(score, builder.inttoptr(address, FLOAT.as_pointer()))
        return context.get_dummy_value()

    return types.void(kept, *[types.intp] * 6), generate


@intrinsic
def _common_sum(typing_context, kept, weights, values, place_bytes, places, number, output):
    """The values at places, weighted and summed; of addresses, as above."""
    stored = _stored(kept)

    def generate(context, builder, signature, arguments):
        _, weights, values, place_bytes, places, number, output = arguments
        vector = ir.VectorType(FLOAT, COMMON_WIDTH)
        total = cgutils.alloca_once_value(builder, vector([0.0] * COMMON_WIDTH))
        with cgutils.for_range(builder, number) as loop:
            value = _kept_at(builder, values, place_bytes, places, loop.index, stored)
            weight = load(builder, builder.add(weights, builder.mul(loop.index, LONG(4))), FLOAT)
            factors = splat(builder, weight, COMMON_WIDTH)
            builder.store(multiply_add(builder, factors, value, builder.load(total)), total)
        into = builder.inttoptr(output, vector.as_pointer())
        builder.store(builder.load(total), into).align = 4
        return context.get_dummy_value()

    return types.void(kept, *[types.intp] * 6), generate


def _stored(kept: Any) -> str:
    return "bfloat16" if kept.dtype == types.uint16 else "float32"


def _kept_at(
    builder: Any, kept: Any, place_bytes: Any, places: Any, index: Any, stored: str
) -> Any:
    """The key or value, in float32, of the place with this index in a list of them."""
    place = load(builder, builder.add(places, builder.mul(index, LONG(8))), LONG)
    address = builder.add(kept, builder.mul(place, place_bytes))
    return as_float(
        builder, load(builder, address, ir.VectorType(STORED[stored], COMMON_WIDTH)), stored
    )


def _widened(number):
    """A float32, which may be stored as its upper half, a bfloat16."""


@overload(_widened, inline="always")
def _widened_in_numba(number):
    if number == numba.uint16:
        return lambda number: np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)
    return lambda number: number


@compiled(fastmath=SUMS)
def _scores(query, key, places, scores):
    """Of a query (d,) with the keys (.., d) at places."""
    if len(query) == COMMON_WIDTH:
        _common_scores(
            key,
            query.ctypes.data,
            key.ctypes.data,
            key.strides[0],
            places.ctypes.data,
            len(places),
            scores.ctypes.data,
        )
    else:
        for i in range(len(places)):
            total = np.float32(0.0)
            for d in range(len(query)):
                total += query[d] * _widened(key[places[i], d])
            scores[i] = total


@compiled(fastmath=SUMS)
def _sum(weights, value, places, output):
    """The weighted values (.., d) at places, into (d,)."""
    if len(output) == COMMON_WIDTH:
        _common_sum(
            value,
            weights.ctypes.data,
            value.ctypes.data,
            value.strides[0],
            places.ctypes.data,
            len(places),
            output.ctypes.data,
        )
    else:
        output[:] = 0.0
        for i in range(len(places)):
            for d in range(len(output)):
                output[d] += weights[i] * _widened(value[places[i], d])


@compiled(parallel=True)
def attend(query, key, value, bias, outputs):
    """Attention of (B, T, N, d) over the first P places of (B, .., N, d), into (B, T, N, d').

    Keys and values are float32 or bfloat16, `bias` (B, 1 or T, P) is 0, or so low that the place is not
    seen; who sees none gets zeros.
    """
    rows, length, heads, _ = query.shape
    for task in numba.prange(rows * heads):
        row, head = task // heads, task % heads
        weights = np.empty(bias.shape[2], np.float32)
        places = np.empty(bias.shape[2], np.int64)
        number = 0
        for t in range(length):
            if t < bias.shape[1]:  # else all see the same
                number = _seen(bias[row, t], places)
            seen, shares = places[:number], weights[:number]
            _scores(query[row, t, head], key[row, :, head], seen, shares)
            _softmax(shares)
            _sum(shares, value[row, :, head], seen, outputs[row, t, head])


@compiled()
def _seen(biases, places):
    """Writes the places that are seen; returns their number."""
    number = 0
    for place in range(len(biases)):
        places[number] = place
        number += biases[place] > UNSEEN
    return number


@compiled(fastmath=SUMS)
def _softmax(scores):
    largest = np.float32(-np.inf)
    for i in range(len(scores)):
        largest = max(largest, scores[i])
    factor = ONE / exponentials(scores, largest)
    for i in range(len(scores)):
        scores[i] *= factor


@numba.njit(fastmath=SUMS, inline="always")
def _exp(x):
    """Of a number that is not positive; PyTorch and TensorFlow have it in vectors, a loop of Numba's not."""
    x = max(x, LOWEST)
    power = np.floor(x * LOG2_E + HALF)
    x = x - power * LN_2 - power * LN_2_REST
    polynomial = ((((C5 * x + C4) * x + C3) * x + C2) * x + C1) * x + C0
    bits = np.int32(np.int32(np.int32(power) + np.int32(127)) << np.int32(23))
    return (polynomial * x * x + x + ONE) * bits.view(np.float32)


@compiled(fastmath=SUMS)
def exponentials(row, largest):
    """Replaces numbers by `exp(number - largest)`; returns their sum."""
    total = np.float32(0.0)
    for i in range(len(row)):
        row[i] = _exp(row[i] - largest)
        total += row[i]
    return total
