"""Attention for decoding: each query reads the slots of the KV cache that it sees, and no others.

Keys and values are float32 or bfloat16. The loops over slots are written in LLVM's language. For heads of
64 numbers, the paper's, a query and the weighted sum of the values stay in registers.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keras_attention.engine.numba.compiling import njit
from keras_attention.engine.numba.llvm import (
    FLOAT,
    INT,
    LANES,
    LINE,
    LONG,
    SIZES,
    STORED,
    as_float,
    at,
    call,
    ir,
    load,
    multiply_add,
    prefetch,
    splat,
    store,
    vectors,
)

# Width of a head in the paper's models.
PAPER_WIDTH = 64
# Slots between the key that is read and the key that is prefetched.
PREFETCHED_SLOTS = 16
# exp(x) by powers of 2, with the constants of Cephes' expf.
LOWEST = -87.0
LOG2_E = 1.44269504
LN_2, LN_2_REST = 0.693359375, -2.12194440e-4
POLYNOMIAL = (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 0.16666666, 0.5)
ONE = np.float32(1.0)


@njit
def attend(kv, query, key_dim, keys, values, value_dim, slots, count, scores, output):
    """Attend with one query of one head.

    Args:
        kv: An empty array of the dtype of keys and values.
        query: Address of `key_dim` float32, scaled.
        key_dim: Width of the head's keys.
        keys: Address of the key in slot 0, and bytes from a slot to the next.
        values: The same of the values.
        value_dim: Width of the head's values.
        slots: Address of the slots to read, integers of 8 bytes, with 16 more behind them.
        count: How many slots are read; the output of none is zeros.
        scores: Workspace, at least `count` float32.
        output: Address for `value_dim` float32.
    """
    is_paper = key_dim == PAPER_WIDTH and value_dim == PAPER_WIDTH
    scores_address = scores.ctypes.data
    if is_paper:
        _paper_scores(kv, query, key_dim, *keys, *values, slots, count, scores_address)
    else:
        _scores(kv, query, key_dim, *keys, *values, slots, count, scores_address)
    largest = _largest(scores_address, count)
    total = _exponentials(scores_address, count, largest)
    factor = ONE / total if count else ONE
    if is_paper:
        _paper_weighted_sum(kv, scores_address, *values, value_dim, slots, count, factor, output)
    else:
        _weighted_sum(kv, scores_address, *values, value_dim, slots, count, factor, output)


def _scores_kernel(constant_width: int | None) -> Any:
    """Make the kernel that scores a query with the keys of its slots, of any width or a constant one.

    With a constant width keys are prefetched some slots ahead, and values for the sum that follows: the
    slots that a beam reads lie anywhere in a large buffer.
    """
    lanes = constant_width or LANES

    @intrinsic
    def scores(context, kv, query, width, keys, key_bytes, values, value_bytes, slots, count, out):
        stored = _stored(kv)
        lines = range(0, (constant_width or 0) * SIZES[stored], LINE)

        def generate(context, builder, signature, arguments):
            _, query, width, keys, key_bytes, values, value_bytes, slots, count, out = arguments
            vector = ir.VectorType(FLOAT, lanes)
            total = cgutils.alloca_once(builder, vector)

            def multiply_part(key: Any, index: Any, mask: Any) -> None:
                one = load(builder, at(builder, query, index, 4), vector, mask)
                other = _kv_part(builder, key, index, mask, stored, lanes)
                builder.store(multiply_add(builder, one, other, builder.load(total)), total)

            with cgutils.for_range(builder, count) as loop:
                later = at(builder, loop.index, PREFETCHED_SLOTS)
                later_key = _slot(builder, keys, key_bytes, slots, later)
                value = _slot(builder, values, value_bytes, slots, loop.index)
                for line in lines:
                    prefetch(builder, at(builder, later_key, line))
                    prefetch(builder, at(builder, value, line))
                key = _slot(builder, keys, key_bytes, slots, loop.index)
                builder.store(vector([0.0] * lanes), total)
                add_products = functools.partial(multiply_part, key)
                vectors(builder, constant_width or width, add_products, lanes)
                score = _sum_of_lanes(builder, builder.load(total))
                pointer = builder.inttoptr(at(builder, out, loop.index, 4), FLOAT.as_pointer())
                builder.store(score, pointer)
            return context.get_dummy_value()

        return types.void(kv, *[types.intp] * 9), generate

    return scores


def _weighted_sum_kernel(constant_width: int | None) -> Any:
    """Make the kernel that sums the weighted values of the slots, times a factor."""
    lanes = constant_width or LANES

    @intrinsic
    def weighted_sum(context, kv, weights, values, value_bytes, width, slots, count, factor, out):
        stored = _stored(kv)

        def generate(context, builder, signature, arguments):
            _, weights, values, value_bytes, width, slots, count, factor, out = arguments
            vector = ir.VectorType(FLOAT, lanes)
            total = cgutils.alloca_once(builder, vector)
            factors = splat(builder, factor, lanes)

            def sum_part(index: Any, mask: Any) -> None:
                builder.store(vector([0.0] * lanes), total)
                with cgutils.for_range(builder, count) as loop:
                    value = _slot(builder, values, value_bytes, slots, loop.index)
                    part = _kv_part(builder, value, index, mask, stored, lanes)
                    weight = load(builder, at(builder, weights, loop.index, 4), FLOAT)
                    weight = splat(builder, weight, lanes)
                    builder.store(multiply_add(builder, weight, part, builder.load(total)), total)
                result = builder.fmul(builder.load(total), factors)
                store(builder, result, at(builder, out, index, 4), mask)

            vectors(builder, constant_width or width, sum_part, lanes)
            return context.get_dummy_value()

        kinds = [*[types.intp] * 6, types.float32, types.intp]
        return types.void(kv, *kinds), generate

    return weighted_sum


_scores, _paper_scores = _scores_kernel(None), _scores_kernel(PAPER_WIDTH)
_weighted_sum, _paper_weighted_sum = _weighted_sum_kernel(None), _weighted_sum_kernel(PAPER_WIDTH)


def _stored(kv: Any) -> str:
    return "bfloat16" if kv.dtype == types.uint16 else "float32"


def _slot(builder: Any, start: Any, slot_bytes: Any, slots: Any, index: Any) -> Any:
    """Return the address of the slot that a list of slots has at an index."""
    slot = load(builder, at(builder, slots, index, 8), LONG)
    return builder.add(start, builder.mul(slot, slot_bytes))


def _kv_part(builder: Any, address: Any, index: Any, mask: Any, stored: str, lanes: int) -> Any:
    """Load a vector of a key or value from an index on, in float32."""
    vector = ir.VectorType(STORED[stored], lanes)
    numbers = load(builder, at(builder, address, index, SIZES[stored]), vector, mask)
    return as_float(builder, numbers, stored)


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector's numbers, formed in any order."""
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}f32"
    return call(builder, name, FLOAT, [FLOAT(0.0), vector], fastmath=("reassoc",))


@intrinsic
def _largest(typing_context, numbers, count):
    """Return the largest of some float32 at an address; -inf of none."""

    def generate(context, builder, signature, arguments):
        numbers, count = arguments
        kind = ir.VectorType(FLOAT, LANES)
        least = kind([-np.inf] * LANES)
        largest = cgutils.alloca_once_value(builder, least)

        def compare(index: Any, mask: Any) -> None:
            found = builder.load(largest)
            vector = load(builder, at(builder, numbers, index, 4), kind, mask, least)
            is_larger = builder.fcmp_ordered(">", vector, found)
            builder.store(builder.select(is_larger, vector, found), largest)

        vectors(builder, count, compare)
        return call(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", FLOAT, [builder.load(largest)])

    return types.float32(types.intp, types.intp), generate


@intrinsic
def _exponentials(typing_context, numbers, count, largest):
    """Replace some float32 at an address by `exp(number - largest)`; return their sum."""

    def generate(context, builder, signature, arguments):
        numbers, count, largest = arguments
        kind = ir.VectorType(FLOAT, LANES)
        total = cgutils.alloca_once_value(builder, kind([0.0] * LANES))
        largest = splat(builder, largest)

        def replace(index: Any, mask: Any) -> None:
            here = at(builder, numbers, index, 4)
            vector = load(builder, here, kind, mask, kind([-np.inf] * LANES))
            exponential = _exp(builder, builder.fsub(vector, largest))
            store(builder, exponential, here, mask)
            builder.store(builder.fadd(builder.load(total), exponential), total)

        vectors(builder, count, replace)
        return _sum_of_lanes(builder, builder.load(total))

    return types.float32(types.intp, types.intp, types.float32), generate


def _exp(builder: Any, x: Any) -> Any:
    """Return exp(x) of a vector of numbers that are not positive."""

    def all(number: float) -> Any:
        return x.type([number] * LANES)

    # A maximum would lose NaN; a comparison keeps it.
    x = builder.select(builder.fcmp_ordered("<", x, all(LOWEST)), all(LOWEST), x)
    power = multiply_add(builder, x, all(LOG2_E), all(0.5))
    power = call(builder, f"llvm.floor.v{LANES}f32", x.type, [power])
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


@njit
def exponentials(row, largest):
    """Replace the numbers of a row by `exp(number - largest)`; return their sum."""
    return _exponentials(row.ctypes.data, len(row), largest)
