"""Attention for decoding by Numba: each query looks at the places that it sees, and at no others.

Keys and values are float32 or bfloat16. The loops over places are written in LLVM's language: of heads of
64 numbers, the paper's, a query and the sum of the values stay in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keras_attention.engine.numba.llvm import (
    FLOAT,
    INT,
    LANES,
    LINE,
    LONG,
    ONE,
    SIZES,
    STORED,
    add,
    as_float,
    fetch,
    ir,
    load,
    multiply_add,
    njit_cached,
    number_at,
    splat,
    store,
    vectors,
)

# Of a head, in the paper's models.
COMMON_WIDTH = 64
# Places between the one that is read and the one that is fetched.
FETCHED_AHEAD = 16
# exp(x) by powers of 2 (the constants of Cephes' expf).
LOWEST = -87.0
LOG2_E = 1.44269504
LN_2, LN_2_REST = 0.693359375, -2.12194440e-4
POLYNOMIAL = (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 0.16666666, 0.5)


@njit_cached()
def attend(kept, query, key_dim, keys, values, value_dim, places, number, weights, output):
    """Attention of one query of one head; all but sizes are addresses.

    Args:
        kept: An empty array of the dtype of keys and values.
        query: Address of `key_dim` float32, scaled.
        key_dim: Width of the head's keys.
        keys: Address of the key at place 0, and bytes from a place to the next.
        values: The same of the values.
        value_dim: Width of the head's values.
        places: Address of the places that are seen, integers of 8 bytes, with 16 more behind them.
        number: How many are seen; who sees none gets zeros.
        weights: Address of room for `number` float32.
        output: Address for `value_dim` float32.
    """
    is_common = key_dim == COMMON_WIDTH and value_dim == COMMON_WIDTH
    if is_common:
        _common_scores(kept, query, *keys, *values, places, number, weights)
    else:
        _scores(kept, query, key_dim, *keys, places, number, weights)
    total = _exponentials(weights, number, _largest(weights, number))
    factor = ONE / total if number else ONE
    if is_common:
        _common_sum(kept, weights, *values, places, number, factor, output)
    else:
        _sum(kept, weights, *values, value_dim, places, number, factor, output)


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
                fetch(builder, add(builder, later_key, line))
                fetch(builder, add(builder, value, line))
            key = _kept_at(builder, keys, key_bytes, places, loop.index, stored)
            score = _sum_of_lanes(builder, builder.fmul(query, key))
            address = number_at(builder, scores, loop.index, 4)
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
            weight = load(builder, number_at(builder, weights, loop.index, 4), FLOAT)
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
    place = load(builder, number_at(builder, places, index, 8), LONG)
    return builder.add(kept, builder.mul(place, place_bytes))


def _kept_at(
    builder: Any, kept: Any, place_bytes: Any, places: Any, index: Any, stored: str
) -> Any:
    """The key or value, in float32, of the place with this index in a list of them."""
    address = _place(builder, kept, place_bytes, places, index)
    return as_float(
        builder, load(builder, address, ir.VectorType(STORED[stored], COMMON_WIDTH)), stored
    )


@intrinsic
def _scores(typing_context, kept, query, width, keys, key_bytes, places, number, scores):
    """As `_common_scores`, of heads of any width."""
    stored = _stored(kept)

    def generate(context, builder, signature, arguments):
        _, query, width, keys, key_bytes, places, number, scores = arguments
        kind = ir.VectorType(FLOAT, LANES)
        total = cgutils.alloca_once(builder, kind)
        with cgutils.for_range(builder, number) as loop:
            key = _place(builder, keys, key_bytes, places, loop.index)
            builder.store(kind([0.0] * LANES), total)
            with vectors(builder, width) as (index, is_there):
                one = load(builder, number_at(builder, query, index, 4), kind, is_there)
                other = _part(builder, key, index, is_there, stored)
                builder.store(multiply_add(builder, one, other, builder.load(total)), total)
            score = _sum_of_lanes(builder, builder.load(total))
            address = number_at(builder, scores, loop.index, 4)
            builder.store(score, builder.inttoptr(address, FLOAT.as_pointer()))
        return context.get_dummy_value()

    return types.void(kept, *[types.intp] * 7), generate


@intrinsic
def _sum(typing_context, kept, weights, values, value_bytes, width, places, number, factor, output):
    """As `_common_sum`, of heads of any width."""
    stored = _stored(kept)

    def generate(context, builder, signature, arguments):
        _, weights, values, value_bytes, width, places, number, factor, output = arguments
        kind = ir.VectorType(FLOAT, LANES)
        total = cgutils.alloca_once(builder, kind)
        factors = splat(builder, factor)
        with vectors(builder, width) as (index, is_there):
            builder.store(kind([0.0] * LANES), total)
            with cgutils.for_range(builder, number) as loop:
                value = _place(builder, values, value_bytes, places, loop.index)
                part = _part(builder, value, index, is_there, stored)
                weight = load(builder, number_at(builder, weights, loop.index, 4), FLOAT)
                added = multiply_add(builder, splat(builder, weight), part, builder.load(total))
                builder.store(added, total)
            result = builder.fmul(builder.load(total), factors)
            store(builder, result, number_at(builder, output, index, 4), is_there)
        return context.get_dummy_value()

    return types.void(kept, *[types.intp] * 6, types.float32, types.intp), generate


def _part(builder: Any, address: Any, index: Any, is_there: Any, stored: str) -> Any:
    """Sixteen numbers of a key or value, in float32, from an index on; zeros where there are none."""
    kind = ir.VectorType(STORED[stored], LANES)
    numbers = load(builder, number_at(builder, address, index, SIZES[stored]), kind, is_there)
    return as_float(builder, numbers, stored)


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


@njit_cached()
def exponentials(row, largest):
    """Replaces numbers by `exp(number - largest)`; returns their sum."""
    return _exponentials(row.ctypes.data, len(row), largest)
