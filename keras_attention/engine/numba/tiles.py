"""The micro-kernels of matrix products: a tile of rows times a panel of 32 outputs, the sums in registers.

Numba's own loops use vectors of half the processor's width, and none of its instructions for short
numbers. So the innermost loop is written in LLVM's language: in vectors of 16 numbers for any processor,
with instructions of their own for some; docs/engine.md says what they are worth.

A micro-kernel is code for addresses and numbers, `tile(x, weight, steps, starts, sums, ahead, pace, output,
stride)`: it reads some rows and a panel in `steps`, adds to the 32 numbers at `starts`, and writes 32 sums
for each row to `sums`. The rest serves the caches: it prefetches the weights from `ahead` on, `pace` bytes
for each turn of its loop, and the rows at `output`, `stride` bytes apart, to which the results will go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keras_attention.engine.numba.amx import AMX_PRODUCTS, AMX_ROWS, amx_tile, configure, release
from keras_attention.engine.numba.compiling import has_features, njit
from keras_attention.engine.numba.llvm import (
    BYTE,
    FLOAT,
    INT,
    LANES,
    LINE,
    LONG,
    SHORT,
    SIZES,
    STORED,
    Body,
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

# Outputs of a panel of weights: two vectors.
PANEL = 32
VECTORS = PANEL // LANES
# Rows of a group, which lie side by side: of each step four bytes of one row, four of the next, ..
GROUP = 12
# Rows of a small tile, with AVX-512.
SMALL_TILE = 4
# Steps of a turn of the innermost loop.
UNROLLED = 2
# Of the tiles of a panel the first share the prefetching of the next one, at most so many. With AMX the
# shares are fixed: a large tile prefetches a fourth of it, a small tile all.
MOST_PARTS = 4
# Of each micro-kernel: dtypes of rows and weights, which name it in compiled code; that in which rows are
# packed; and how many numbers are multiplied at once.
KERNELS = {
    "float32": ("float32", "float32", "float32", 1),
    "bfloat16": ("float32", "uint16", "float32", 1),
    "float32 int8": ("float32", "int8", "float32", 1),
    "int8": ("int32", "int8", "int16", 2),
    "avx2 int8": ("int16", "int8", "int8", 4),
    "avx512 bfloat16": ("int32", "uint16", "uint16", 2),
    "avx512 int8": ("uint32", "int8", "uint8", 4),
    "amx bfloat16": ("uint16", "uint16", "uint16", 2),
    "amx int8": ("int8", "int8", "int8", 4),
}
# Dot products of the numbers in four bytes: the instruction, and the kind of its sums.
DOT_PRODUCTS = {"avx512 int8": ("vpdpbusd", INT), "avx512 bfloat16": ("vdpbf16ps", FLOAT)}


def tile_rows(kernel: str) -> tuple[int, int]:
    """Return the rows of a large and of a small tile."""
    if kernel.startswith("amx"):
        return 2 * AMX_ROWS, AMX_ROWS
    if has_features("avx512f"):
        return GROUP, SMALL_TILE
    # Registers are fewer, or shorter. A single row of floats would wait for its own sums, integers do not.
    return 2, 1 if kernel in ("int8", "avx2 int8") else 2


class Arithmetic(NamedTuple):
    """What a micro-kernel computes with: LLVM's types, and code for the products of a step."""

    of_rows: Any  # of the four bytes of a row
    of_sums: Any
    weights: Any  # of the weights of 16 outputs
    weight_bytes: int  # of one output
    row: Callable[..., Any]  # the four bytes, repeated, as the products take them
    column: Callable[..., Any]  # the weights, as the products take them
    add_products: Callable[..., Any]  # a row and a column are multiplied and added to sums


def _arithmetic(kernel: str) -> Arithmetic:
    """Return the arithmetic of a micro-kernel, of all but AMX."""

    def unchanged(builder: Any, numbers: Any) -> Any:
        return numbers

    integers, both = ir.VectorType(INT, LANES), ir.VectorType(SHORT, 2 * LANES)
    if kernel in ("float32", "bfloat16", "float32 int8"):  # weights that are widened to float32
        stored = kernel.rpartition(" ")[2]
        widened = functools.partial(as_float, stored=stored)
        weights, size = ir.VectorType(STORED[stored], LANES), SIZES[stored]
        return Arithmetic(FLOAT, FLOAT, weights, size, unchanged, widened, multiply_add)
    if kernel == "int8":  # pairs of 16-bit integers times pairs of 8-bit integers
        products_of = ir.VectorType(INT, 2 * LANES)

        def row(builder: Any, four_bytes: Any) -> Any:
            return builder.sext(builder.bitcast(four_bytes, both), products_of)

        def column(builder: Any, weights: Any) -> Any:
            return builder.sext(weights, products_of)

        def add_pairs(builder: Any, row: Any, column: Any, total: Any) -> Any:
            # In this form LLVM finds `vpmaddwd`, the one instruction that x86 has for it.
            products = builder.mul(row, column)
            masks = (integers([*range(first, 2 * LANES, 2)]) for first in (0, 1))
            pairs = [builder.shuffle_vector(products, products, mask) for mask in masks]
            return builder.add(total, builder.add(*pairs))

        weights = ir.VectorType(BYTE, 2 * LANES)
        return Arithmetic(INT, INT, weights, 2, row, column, add_pairs)
    if kernel == "avx2 int8":
        weights = ir.VectorType(BYTE, 4 * LANES)
        return Arithmetic(INT, INT, weights, 4, _signed_row, unchanged, _add_signed_products)
    # AVX512-VNNI multiplies bytes without sign (rows) by bytes with a sign, AVX512-BF16 pairs of bfloat16.
    instruction, of_sums = DOT_PRODUCTS[kernel]
    sums = ir.VectorType(of_sums, LANES)
    kind = ir.FunctionType(sums, [integers, integers, sums])

    def add_dot_products(builder: Any, *operands: Any) -> Any:
        code = ir.InlineAsm(kind, f"{instruction} $2, $1, $0", "=v,v,v,0", False)
        return builder.call(code, operands)

    return Arithmetic(INT, of_sums, integers, 4, unchanged, unchanged, add_dot_products)


def _signed_row(builder: Any, four_bytes: Any) -> tuple[Any, Any]:
    """Return the absolute values of half a vector of bytes, and the bytes."""
    kind = ir.VectorType(BYTE, 2 * LANES)
    half = ir.VectorType(INT, LANES // 2)
    bytes_of = builder.bitcast(
        builder.shuffle_vector(four_bytes, four_bytes, half([*range(LANES // 2)])), kind
    )
    negative = builder.icmp_signed("<", bytes_of, kind([0] * 2 * LANES))
    return builder.select(negative, builder.neg(bytes_of), bytes_of), bytes_of


def _add_signed_products(builder: Any, row: tuple[Any, Any], column: Any, total: Any) -> Any:
    """Add the dot products of four bytes each, of which AVX2 multiplies pairs.

    `vpmaddubsw` takes one side without a sign, so that of the row goes to the weight. Numbers are at most
    127, and two products at most 32,258, which 16 bits hold.
    """
    absolute, signed = row
    half, pairs = ir.VectorType(INT, LANES // 2), ir.VectorType(SHORT, LANES)
    sums = []
    for first in (0, 2 * LANES):
        mask = ir.VectorType(INT, 2 * LANES)([*range(first, first + 2 * LANES)])
        weights = builder.shuffle_vector(column, column, mask)
        weights = call(builder, "llvm.x86.avx2.psign.b", weights.type, [weights, signed])
        products = call(builder, "llvm.x86.avx2.pmadd.ub.sw", pairs, [absolute, weights])
        ones = pairs([1] * LANES)
        sums.append(call(builder, "llvm.x86.avx2.pmadd.wd", half, [products, ones]))
    added = builder.shuffle_vector(*sums, ir.VectorType(INT, LANES)([*range(LANES)]))
    return builder.add(total, added)


def vector_tile(kernel: str, rows: int) -> Body:
    """Write a micro-kernel of the first rows of a group, of all but AMX."""
    of_rows, of_sums, weights, size, row_of, column_of, add_products = _arithmetic(kernel)
    vector = ir.VectorType(of_sums, LANES)
    columns = range(VECTORS)
    lines = UNROLLED * size * PANEL // LINE

    def body(builder: Any, *arguments: Any) -> None:
        x, weight, steps, starts, sums, ahead, pace, output, stride = arguments
        for row in range(rows):
            row_output = builder.add(output, builder.mul(stride, LONG(row)))
            for i in columns:
                prefetch(builder, at(builder, row_output, 4 * LANES * i), for_write=True)
        first = [load(builder, at(builder, starts, 4 * LANES * i), vector) for i in columns]
        totals = [[cgutils.alloca_once_value(builder, s) for s in first] for _ in range(rows)]
        with cgutils.for_range(builder, builder.udiv(steps, LONG(UNROLLED))) as loop:
            prefetched = builder.add(ahead, builder.mul(loop.index, pace))
            for line in range(lines):
                prefetch(builder, at(builder, prefetched, line * LINE))
            turn = builder.mul(loop.index, LONG(UNROLLED))
            for step in range(UNROLLED):
                index = at(builder, turn, step)
                panel = at(builder, weight, index, size * PANEL)
                group = at(builder, x, index, 4 * GROUP)
                parts_of_panel = [at(builder, panel, size * LANES * i) for i in columns]
                loaded = [load(builder, part, weights) for part in parts_of_panel]
                widened = [column_of(builder, numbers) for numbers in loaded]
                for row, row_totals in enumerate(totals):
                    # A row's number is read just before its use: there are not registers for all.
                    number = splat(builder, load(builder, at(builder, group, 4 * row), of_rows))
                    factor = row_of(builder, number)
                    for column, total in zip(widened, row_totals, strict=True):
                        added = add_products(builder, factor, column, builder.load(total))
                        builder.store(added, total)
        for row in range(rows):
            for i in columns:
                address = at(builder, sums, 4 * (row * PANEL + i * LANES))
                store(builder, builder.load(totals[row][i]), address)

    return body


def _tile_intrinsic(size: int, parts: int) -> Any:
    """Make the large or the small tile, of arrays, whose types name the micro-kernel, and addresses."""

    @intrinsic
    def tile(
        typing_context, x, panels, rows_at, weight, steps, starts, sums, ahead, pace, output, stride
    ):
        dtypes = str(x.dtype), str(panels.dtype)
        kernel = next(name for name, known in KERNELS.items() if known[:2] == dtypes)
        rows = tile_rows(kernel)[size]
        if kernel.startswith("amx"):
            body = amx_tile(AMX_PRODUCTS[x.dtype, panels.dtype], rows, parts)
        else:
            body = vector_tile(kernel, rows)

        def generate(context, builder, signature, arguments):
            body(builder, *arguments[2:])
            return context.get_dummy_value()

        return types.void(x, panels, *[types.intp] * 9), generate

    return tile


_large_tile, _small_tile = _tile_intrinsic(0, MOST_PARTS), _tile_intrinsic(1, 1)


@intrinsic
def _sums_on_stack(typing_context):
    """Return the address of room for the sums of any tile, until the function returns."""

    def generate(context, builder, signature, arguments):
        numbers = ir.ArrayType(INT, max(GROUP, 2 * AMX_ROWS) * PANEL)
        return builder.ptrtoint(cgutils.alloca_once(builder, numbers), LONG)

    return types.intp(), generate


@intrinsic
def _epilogue(typing_context, sums, total, row_scale, scales, bias, floor, output, width):
    """Write `max(floor, row_scale scales sums + bias)` of a row and a panel; of addresses."""

    def generate(context, builder, signature, arguments):
        _, total, row_scale, scales, bias, floor, output, width = arguments
        vector = ir.VectorType(FLOAT, LANES)
        row_scales, floors = splat(builder, row_scale), splat(builder, floor)

        def write(index: Any, mask: Any) -> None:
            numbers, factors, offsets = (
                load(builder, at(builder, address, index, 4), ir.VectorType(kind, LANES))
                for address, kind in ((total, of_sums), (scales, FLOAT), (bias, FLOAT))
            )
            if of_sums == INT:
                numbers = builder.sitofp(numbers, vector)
            factors = builder.fmul(row_scales, factors)
            numbers = multiply_add(builder, numbers, factors, offsets)
            # A maximum would lose NaN; a comparison keeps it.
            is_below = builder.fcmp_ordered("<", numbers, floors)
            numbers = builder.select(is_below, floors, numbers)
            store(builder, numbers, at(builder, output, index, 4), mask)

        vectors(builder, width, write)
        return context.get_dummy_value()

    of_sums = {types.float32: FLOAT, types.int32: INT}[sums.dtype]
    address, number = types.intp, types.float32
    kinds = (address, number, address, address, number, address, types.intp)
    return types.void(sums, *kinds), generate


# What `multiply` reads of a weight matrix, from a table of integers: addresses and sizes.
MATRIX = ("panels", "count", "steps", "stride", "starts", "scales", "bias", "width", "depth")
PANELS, COUNT, STEPS, STRIDE, STARTS, SCALES, BIAS, WIDTH, DEPTH = range(len(MATRIX))


@njit
def prefetch_parts(layout, rows, matrix):
    """Say how the tiles of a panel share the prefetching of the next one.

    Returns:
        How many tiles prefetch, the bytes of each one's part, and those of a turn of its loop.
    """
    tiles = (rows + layout.large_tile - 1) // layout.large_tile
    parts = 1 if tiles == 1 else 2 if tiles <= 3 else MOST_PARTS
    if layout.unit != 4:
        parts = MOST_PARTS
    turn = matrix[STRIDE] // matrix[STEPS] * UNROLLED
    return parts if layout.prefetches else 0, matrix[STRIDE] // parts, max(LINE, turn // parts)


@njit
def multiply(layout, rows, workspace, matrix, floor, rank, size, outputs):
    """Compute this thread's panels of `x W^T + b`, at least `floor`.

    Args:
        layout: A `packing.Layout`.
        rows: The number R of rows.
        workspace: A `packing.PackedRows`, which holds the rows x.
        matrix: The `MATRIX` numbers of the weight W (F, D) and bias b (F,).
        floor: The least of an output.
        rank: Which thread this is.
        size: The number of threads.
        outputs: (R, at least F).
    """
    x, panels, of_sums = layout.rows, layout.weights, layout.sums
    sums, stride = _sums_on_stack(), outputs.strides[0]
    packed, row_scales = workspace.packed.ctypes.data, workspace.scales
    count, steps, width = matrix[COUNT], matrix[STEPS], matrix[WIDTH]
    group_bytes = steps * layout.group * layout.unit
    parts, part_bytes, pace = prefetch_parts(layout, rows, matrix)
    configure(x, panels)
    for panel in range(count * rank // size, count * (rank + 1) // size):
        weight = matrix[PANELS] + panel * matrix[STRIDE]
        first = panel * PANEL
        starts = matrix[STARTS] + 4 * first
        scales, bias = matrix[SCALES] + 4 * first, matrix[BIAS] + 4 * first
        panel_width, panel_outputs = min(PANEL, width - first), outputs.ctypes.data + 4 * first
        row, part = 0, 0
        while row < rows:
            tile_at = packed + row // layout.group * group_bytes + row % layout.group * 4
            output = panel_outputs + row * stride
            # When the next panel has been prefetched, later tiles prefetch what they read.
            is_more = part < parts
            ahead = weight + matrix[STRIDE] + part * part_bytes if is_more else weight
            args = (weight, steps, starts, sums, ahead, pace if is_more else 0, output, stride)
            if rows - row > layout.small_tile:
                tile = layout.large_tile
                _large_tile(x, panels, tile_at, *args)
            else:
                tile = layout.small_tile
                _small_tile(x, panels, tile_at, *args)
            for i in range(min(tile, rows - row)):
                total, into = sums + i * 4 * PANEL, output + i * stride
                _epilogue(
                    of_sums, total, row_scales[row + i], scales, bias, floor, into, panel_width
                )
            row, part = row + tile, part + 1
    release(x, panels)
