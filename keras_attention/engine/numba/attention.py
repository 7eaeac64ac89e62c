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

from keras_attention.engine.numba.tiles import (
    FLOAT,
    INT,
    LANES,
    LINE,
    LONG,
    ONE,
    SIZES,
    STORED,
    SUMS,
    as_float,
    compiled,
    fetch,
    load,
    multiply_add,
    number_at,
    splat,
    store,
    vectors,
)

# Of a head, in the paper's models.
COMMON_WIDTH = 64
# A place with a bias below this is not looked at.
UNSEEN = np.float32(-1e4)
# Places between the one that is read and the one that is fetched.
FETCHED_AHEAD = 16
# exp(x) by powers of 2 (the constants of Cephes' expf).
LOWEST = -87.0
LOG2_E = 1.44269504
LN_2, LN_2_REST = 0.693359375, -2.12194440e-4
POLYNOMIAL = (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 0.16666666, 0.5)


@intrinsic
def _common_scores(
    typing_context, kept, query, keys, key_bytes, values, value_bytes, places, number, scores
):
    """Scores of a query with the keys at places; of addresses, but for the type of what is kept.

    Keys are fetched ahead, the values for later: what beams see lies anywhere in much memory.
    """
    stored = _stored(kept)
    lines = range(0, COMMON_WIDTH * SIZES[stored], LINE)

    def generate(context, builder, signature, arguments):
        _, query, keys, key_bytes, values, value_bytes, places, number, scores = arguments
        vector = ir.VectorType(FLOAT, COMMON_WIDTH)
        query = load(builder, query, vector)
        with cgutils.for_range(builder, number) as loop:
            later = builder.add(loop.index, LONG(FETCHED_AHEAD))
            later_key = _place(builder, keys, key_bytes, places, later)
            value = _place(builder, values, value_bytes, places, loop.index)
            for line in lines:
                fetch(builder, builder.add(later_key, LONG(line)))
                fetch(builder, builder.add(value, LONG(line)))
            key = _kept_at(builder, keys, key_bytes, places, loop.index, stored)
            score = _sum_of_lanes(builder, builder.fmul(query, key))
            address = builder.add(scores, builder.mul(loop.index, LONG(4)))
            builder.store(score, builder.inttoptr(address, FLOAT.as_pointer()))
        return context.get_dummy_value()

    return types.void(kept, *[types.intp] * 8), generate


@intrinsic
def _common_sum(typing_context, kept, weights, values, place_bytes, places, number, factor, output):
    """The values at places, weighted and summed, times a factor; of addresses, as above."""
    stored = _stored(kept)

    def generate(context, builder, signature, arguments):
        _, weights, values, place_bytes, places, number, factor, output = arguments
        vector = ir.VectorType(FLOAT, COMMON_WIDTH)
        total = cgutils.alloca_once_value(builder, vector([0.0] * COMMON_WIDTH))
        with cgutils.for_range(builder, number) as loop:
            value = _kept_at(builder, values, place_bytes, places, loop.index, stored)
            weight = load(builder, builder.add(weights, builder.mul(loop.index, LONG(4))), FLOAT)
            factors = splat(builder, weight, COMMON_WIDTH)
            builder.store(multiply_add(builder, factors, value, builder.load(total)), total)
        factors = splat(builder, factor, COMMON_WIDTH)
        store(builder, builder.fmul(builder.load(total), factors), output)
        return context.get_dummy_value()

    return types.void(kept, *[types.intp] * 5, types.float32, types.intp), generate


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    """The sum of a vector's numbers, in any order."""
    kind = ir.FunctionType(FLOAT, [FLOAT, vector.type])
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}f32"
    reduce = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(reduce, [FLOAT(0.0), vector], fastmath=("reassoc",))


def _stored(kept: Any) -> str:
    return "bfloat16" if kept.dtype == types.uint16 else "float32"


def _place(builder: Any, kept: Any, place_bytes: Any, places: Any, index: Any) -> Any:
    """The address of the place with this index in a list of them."""
    place = load(builder, builder.add(places, builder.mul(index, LONG(8))), LONG)
    return builder.add(kept, builder.mul(place, place_bytes))


def _kept_at(
    builder: Any, kept: Any, place_bytes: Any, places: Any, index: Any, stored: str
) -> Any:
    """The key or value, in float32, of the place with this index in a list of them."""
    address = _place(builder, kept, place_bytes, places, index)
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


@compiled(parallel=True)
def attend(query, key, value, lines, bias, outputs):
    """Attention of (B, T, N, d) over the first P places of (lines, .., N, d), into (B, T, N, d').

    Keys and values are float32 or bfloat16; those of a sentence are in the line that `lines` (B,) says.
    `bias` (B, 1 or T, P) is 0, or so low that the place is not seen; who sees none gets zeros.
    """
    rows, length, heads, width = query.shape
    is_common = width == COMMON_WIDTH and value.shape[3] == COMMON_WIDTH
    # Addresses: what stands for a part of an array is counted in and out, which takes longer than the part.
    queries, keys, values, sums = (
        query.ctypes.data,
        key.ctypes.data,
        value.ctypes.data,
        outputs.ctypes.data,
    )
    for task in numba.prange(rows * heads):
        row, head = task // heads, task % heads
        weights = np.empty(bias.shape[2], np.float32)
        places = np.zeros(bias.shape[2] + FETCHED_AHEAD, np.int64)
        at_weights, at_places = weights.ctypes.data, places.ctypes.data
        line = lines[row]
        at_key = keys + line * key.strides[0] + head * key.strides[2]
        at_value = values + line * value.strides[0] + head * value.strides[2]
        number = 0
        for t in range(length):
            if t < bias.shape[1]:  # else all see the same
                number = _seen(bias, row, t, places)
            if is_common:
                at = (
                    queries
                    + row * query.strides[0]
                    + t * query.strides[1]
                    + head * query.strides[2]
                )
                of_keys, of_values = (at_key, key.strides[1]), (at_value, value.strides[1])
                _common_scores(key, at, *of_keys, *of_values, at_places, number, at_weights)
            else:
                _scores(query, key, line, (row, t, head), places, number, weights)
            total = _exponentials(at_weights, number, _largest(at_weights, number))
            factor = ONE / total if number else ONE
            if is_common:
                at = (
                    sums
                    + row * outputs.strides[0]
                    + t * outputs.strides[1]
                    + head * outputs.strides[2]
                )
                _common_sum(
                    value, at_weights, at_value, value.strides[1], at_places, number, factor, at
                )
            else:
                _sum(weights, value, line, (row, t, head), places, number, factor, outputs)


@compiled()
def _seen(bias, row, t, places):
    """Writes the places that a query sees; returns their number."""
    number = 0
    for place in range(bias.shape[2]):
        places[number] = place
        number += bias[row, t, place] > UNSEEN
    return number


@compiled(fastmath=SUMS)
def _scores(query, key, line, at, places, number, scores):
    """As `_common_scores`, of heads of any width."""
    row, t, head = at
    for i in range(number):
        total = np.float32(0.0)
        for d in range(query.shape[3]):
            total += query[row, t, head, d] * _widened(key[line, places[i], head, d])
        scores[i] = total


@compiled(fastmath=SUMS)
def _sum(weights, value, line, at, places, number, factor, outputs):
    """As `_common_sum`, of heads of any width."""
    row, t, head = at
    outputs[row, t, head] = 0.0
    for i in range(number):
        for d in range(value.shape[3]):
            outputs[row, t, head, d] += (
                factor * weights[i] * _widened(value[line, places[i], head, d])
            )


@intrinsic
def _largest(typing_context, numbers, size):
    """The largest number at an address; -inf of none."""

    def generate(context, builder, signature, arguments):
        numbers, size = arguments
        kind = ir.VectorType(FLOAT, LANES)
        least = kind([-np.inf] * LANES)
        largest = cgutils.alloca_once_value(builder, least)
        with vectors(builder, size) as (index, is_there):
            found = builder.load(largest)
            vector = load(builder, number_at(builder, numbers, index, 4), kind, is_there, least)
            is_larger = builder.fcmp_ordered(">", vector, found)
            builder.store(builder.select(is_larger, vector, found), largest)
        name = f"llvm.vector.reduce.fmax.v{LANES}f32"
        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOAT, [kind]), name
        )
        return builder.call(reduce, [builder.load(largest)])

    return types.float32(types.intp, types.intp), generate


@intrinsic
def _exponentials(typing_context, numbers, size, largest):
    """Replaces the numbers at an address by `exp(number - largest)`; returns their sum."""

    def generate(context, builder, signature, arguments):
        numbers, size, largest = arguments
        kind = ir.VectorType(FLOAT, LANES)
        total = cgutils.alloca_once_value(builder, kind([0.0] * LANES))
        largest = splat(builder, largest)
        with vectors(builder, size) as (index, is_there):
            address = number_at(builder, numbers, index, 4)
            vector = load(builder, address, kind, is_there, kind([-np.inf] * LANES))
            exponential = _exp(builder, builder.fsub(vector, largest))
            store(builder, exponential, address, is_there)
            builder.store(builder.fadd(builder.load(total), exponential), total)
        return _sum_of_lanes(builder, builder.load(total))

    return types.float32(types.intp, types.intp, types.float32), generate


def _exp(builder: Any, x: Any) -> Any:
    """Of a vector of numbers that are not positive."""

    def all(number: float) -> Any:
        return x.type([number] * LANES)

    floor = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(x.type, [x.type]), f"llvm.floor.v{LANES}f32"
    )
    # Not the greater of both, which is not NaN where one is.
    x = builder.select(builder.fcmp_ordered("<", x, all(LOWEST)), all(LOWEST), x)
    power = builder.call(floor, [multiply_add(builder, x, all(LOG2_E), all(0.5))])
    x = multiply_add(builder, power, all(-LN_2), x)
    x = multiply_add(builder, power, all(-LN_2_REST), x)
    polynomial = all(POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        polynomial = multiply_add(builder, polynomial, x, all(coefficient))
    polynomial = multiply_add(builder, polynomial, builder.fmul(x, x), builder.fadd(x, all(1.0)))
    integers = ir.VectorType(INT, LANES)
    bits = builder.add(builder.fptosi(power, integers), integers([127] * LANES))
    bits = builder.shl(bits, integers([23] * LANES))
    return builder.fmul(polynomial, builder.bitcast(bits, x.type))


@compiled()
def exponentials(row, largest):
    """Replaces numbers by `exp(number - largest)`; returns their sum."""
    return _exponentials(row.ctypes.data, len(row), largest)
