"""Tiles of products of matrices for Numba: some rows times 32 outputs, the sums in registers.

Numba's own loops are compiled to vectors of half the width that the processor has, and to none of its
instructions for short numbers. So the innermost loop is written out in LLVM's language: for any
processor in vectors of 16 numbers, for some with instructions that are theirs alone.

A tile is code for addresses and numbers, `tile(x, weight, steps, starts, sums, ahead, output, stride)`:
some rows, a panel of weights that is read from its beginning to its end in `steps`, what 32 sums start
from, and where those of each row go. The rest is for the caches: the weights to fetch meanwhile, and the
first of the rows, `stride` bytes apart, that the sums will be written to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keras_attention.engine.numba.amx import AMX_BYTES, AMX_ROWS, amx_tile
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
    add,
    as_float,
    fetch,
    has_features,
    ir,
    load,
    multiply_add,
    njit_cached,
    number_at,
    splat,
    store,
    vectors,
)

# Outputs of a panel of weights: two vectors.
PANEL = 32
VECTORS = PANEL // LANES
# Rows that lie side by side: of each step four bytes of one, four of the next, ..
GROUP = 12
# Rows of a tile where there are this few.
FEW_ROWS = 4
# Steps of a turn of the innermost loop.
UNROLLED = 2
# Of many rows each of the first tiles fetches this part of the next panel, of few their only one all of it.
FETCHED_PARTS = 4
STORED_SUMS = {types.float32: FLOAT, types.int32: INT}


def float_tile(stored: str, rows: int, parts: int) -> Body:
    """The first rows of a group of float32 times weights of float32 or bfloat16.

    A panel holds for each of `steps` positions of the depth its 32 outputs.
    """

    def add_products(builder: Any, number: Any, columns: list[Any], sums: list[Any]) -> None:
        columns = [as_float(builder, column, stored) for column in columns]
        for row, places in enumerate(sums):
            factor = number(row)
            for column, place in zip(columns, places, strict=True):
                total = multiply_add(builder, factor, column, builder.load(place))
                builder.store(total, place)

    weights = ir.VectorType(STORED[stored], LANES)
    return _tile(rows, parts, FLOAT, FLOAT, weights, SIZES[stored], add_products)


def integer_tile(rows: int, parts: int) -> Body:
    """The first rows of a group of pairs of 16-bit integers times pairs of 8-bit integers.

    A panel holds for each of `steps` pairs of positions of the depth its 32 outputs' pairs.
    """
    sums_of, both = ir.VectorType(INT, LANES), ir.VectorType(SHORT, 2 * LANES)
    products_of = ir.VectorType(INT, 2 * LANES)

    def every_other(builder: Any, numbers: Any, first: int) -> Any:
        return builder.shuffle_vector(numbers, numbers, sums_of([*range(first, 2 * LANES, 2)]))

    def add_products(builder: Any, number: Any, columns: list[Any], sums: list[Any]) -> None:
        columns = [builder.sext(column, products_of) for column in columns]
        for row, places in enumerate(sums):
            factor = builder.sext(builder.bitcast(number(row), both), products_of)
            for column, place in zip(columns, places, strict=True):
                # Written so, LLVM finds the one instruction for it that processors of x86 have.
                products = builder.mul(factor, column)
                pairs = [every_other(builder, products, first) for first in (0, 1)]
                total = builder.add(builder.load(place), builder.add(*pairs))
                builder.store(total, place)

    return _tile(rows, parts, INT, INT, ir.VectorType(BYTE, 2 * LANES), 2, add_products)


# Products of the numbers in four bytes at once: the instruction, and the kind of its sums.
DOT_PRODUCTS = {"bytes": ("vpdpbusd", INT), "pairs": ("vdpbf16ps", FLOAT)}


def dot_tile(kind: str, rows: int, parts: int) -> Body:
    """The first rows of a group of short numbers times such weights, four bytes of each at once.

    By AVX512-VNNI of bytes without sign times bytes with a sign, or by AVX512-BF16 of pairs of bfloat16.
    A panel holds for each of `steps` groups of positions of the depth its 32 outputs' four bytes.
    """
    name, of_sums = DOT_PRODUCTS[kind]
    weights, vector = ir.VectorType(INT, LANES), ir.VectorType(of_sums, LANES)

    def add_products(builder: Any, number: Any, columns: list[Any], sums: list[Any]) -> None:
        instruction = ir.InlineAsm(
            ir.FunctionType(vector, [weights, weights, vector]),
            f"{name} $2, $1, $0",
            "=v,v,v,0",
            False,
        )
        for row, places in enumerate(sums):
            factor = number(row)
            for column, place in zip(columns, places, strict=True):
                builder.store(
                    builder.call(instruction, [factor, column, builder.load(place)]), place
                )

    return _tile(rows, parts, INT, of_sums, weights, 4, add_products)


def _tile(
    rows: int,
    parts: int,
    of_rows: Any,
    of_sums: Any,
    weights: Any,
    size: int,
    add_products: Callable[..., None],
) -> Body:
    """A tile of rows and of sums of these kinds; a weight of a step takes `size` bytes."""
    vector = ir.VectorType(of_sums, LANES)
    columns = range(VECTORS)
    fetched_lines = max(1, UNROLLED * size * PANEL // LINE // parts)

    def body(builder: Any, *arguments: Any) -> None:
        x, weight, steps, starts, sums, ahead, output, stride = arguments
        for row in range(rows):
            of_row = builder.add(output, builder.mul(stride, LONG(row)))
            for i in columns:
                fetch(builder, add(builder, of_row, 4 * LANES * i), is_written=True)
        first = [load(builder, add(builder, starts, 4 * LANES * i), vector) for i in columns]
        places = [
            [cgutils.alloca_once_value(builder, start) for start in first] for _ in range(rows)
        ]
        with cgutils.for_range(builder, builder.udiv(steps, LONG(UNROLLED))) as loop:
            fetched = builder.add(ahead, builder.mul(loop.index, LONG(fetched_lines * LINE)))
            for line in range(fetched_lines):
                fetch(builder, add(builder, fetched, line * LINE))
            turn = builder.mul(loop.index, LONG(UNROLLED))
            for step in range(UNROLLED):
                index = add(builder, turn, step)
                panel = builder.add(weight, builder.mul(index, LONG(size * PANEL)))
                group = builder.add(x, builder.mul(index, LONG(4 * GROUP)))

                def number(row: int, group: Any = group) -> Any:
                    # Read just before its use: there are no registers for those of all rows.
                    return splat(builder, load(builder, add(builder, group, 4 * row), of_rows))

                loaded = [
                    load(builder, add(builder, panel, size * LANES * i), weights) for i in columns
                ]
                add_products(builder, number, loaded, places)
        for row in range(rows):
            for i in columns:
                address = add(builder, sums, 4 * (row * PANEL + i * LANES))
                store(builder, builder.load(places[row][i]), address)

    return body


@intrinsic
def _begin(typing_context, x, panels):
    """What a thread needs before its tiles of these."""

    def generate(context, builder, signature, values):
        if kind_of(x.dtype, panels.dtype) in AMX_PRODUCTS:
            # Palette 1; of the 8 tiles the bytes of a row and the number of rows.
            palette = bytearray(64)
            palette[0] = 1
            for tile in range(8):
                palette[16 + 2 * tile], palette[48 + tile] = AMX_BYTES, AMX_ROWS
            content = cgutils.create_constant_array(BYTE, palette)
            address = cgutils.global_constant(builder, "amx_palette", content)
            kind = ir.FunctionType(ir.VoidType(), [LONG])
            code = ir.InlineAsm(kind, "ldtilecfg ($0)", "r,~{memory}", True)
            builder.call(code, [builder.ptrtoint(address, LONG)])
        return context.get_dummy_value()

    return types.void(x, panels), generate


@intrinsic
def _end(typing_context, x, panels):
    """What a thread does after its tiles of these."""

    def generate(context, builder, signature, values):
        if kind_of(x.dtype, panels.dtype) in AMX_PRODUCTS:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(ir.InlineAsm(kind, "tilerelease", "~{memory}", True), [])
        return context.get_dummy_value()

    return types.void(x, panels), generate


@intrinsic
def _room_for_sums(typing_context):
    """The address of room on the stack for the sums of a tile of any kind, until the function returns."""

    def generate(context, builder, signature, values):
        numbers = ir.ArrayType(INT, max(GROUP, 2 * AMX_ROWS) * PANEL)
        return builder.ptrtoint(cgutils.alloca_once(builder, numbers), LONG)

    return types.intp(), generate


AMX_PRODUCTS = {"amx bfloat16": "tdpbf16ps", "amx int8": "tdpbssd"}
# A kind of tile by what rows and weights are of.
KINDS = {
    (types.float32, types.float32): "float32",
    (types.float32, types.uint16): "bfloat16",
    (types.int32, types.int8): "int8",
    (types.int32, types.uint16): "pairs",
    (types.uint32, types.int8): "bytes",
    (types.uint16, types.uint16): "amx bfloat16",
    (types.int8, types.int8): "amx int8",
}


def kind_of(rows: Any, weights: Any) -> str:
    """Which tile is meant for rows and weights of these types of Numba's."""
    return KINDS[rows, weights]


def tile_rows(kind: str) -> tuple[int, int]:
    """The rows of a tile where there are many, and where there are few."""
    if kind in AMX_PRODUCTS:
        return 2 * AMX_ROWS, AMX_ROWS
    # Without AVX-512 registers are fewer, or shorter.
    return (GROUP, FEW_ROWS) if has_features("avx512f") else (2, 2)


def _intrinsic(size: int, parts: int) -> Any:
    """The tile of the first or second size for the arrays that it is called with, then its arguments."""

    @intrinsic
    def tile(typing_context, x, panels, at, weight, steps, starts, sums, ahead, output, stride):
        kind = kind_of(x.dtype, panels.dtype)
        rows = tile_rows(kind)[size]
        if kind in AMX_PRODUCTS:
            body = amx_tile(AMX_PRODUCTS[kind], rows, parts)
        elif kind == "int8":
            body = integer_tile(rows, parts)
        else:
            body = (dot_tile if kind in DOT_PRODUCTS else float_tile)(kind, rows, parts)

        def generate(context, builder, signature, values):
            body(builder, *values[2:])
            return context.get_dummy_value()

        return types.void(x, panels, *[types.intp] * 8), generate

    return tile


_tile_of_many, _tile_of_few = _intrinsic(0, FETCHED_PARTS), _intrinsic(1, 1)


@intrinsic
def _finish(typing_context, sums, total, row_scale, scales, bias, floor, output, width):
    """`max(floor, scaled sums + bias)` of a row and a panel; of addresses, but for the sums' type."""

    def generate(context, builder, signature, values):
        _, total, row_scale, scales, bias, floor, output, width = values
        vector = ir.VectorType(FLOAT, LANES)
        row_scales, floors = splat(builder, row_scale), splat(builder, floor)
        with vectors(builder, width) as (index, is_there):

            def of_panel(address: Any, kind: Any) -> Any:
                return load(
                    builder, number_at(builder, address, index, 4), ir.VectorType(kind, LANES)
                )

            numbers = of_panel(total, STORED_SUMS[sums.dtype])
            if numbers.type != vector:
                numbers = builder.sitofp(numbers, vector)
            factors = builder.fmul(row_scales, of_panel(scales, FLOAT))
            numbers = multiply_add(builder, numbers, factors, of_panel(bias, FLOAT))
            # Not the greater of both, which is not NaN where one is.
            is_below = builder.fcmp_ordered("<", numbers, floors)
            numbers = builder.select(is_below, floors, numbers)
            store(builder, numbers, number_at(builder, output, index, 4), is_there)
        return context.get_dummy_value()

    kinds = (
        types.intp,
        types.float32,
        types.intp,
        types.intp,
        types.float32,
        types.intp,
        types.intp,
    )
    return types.void(sums, *kinds), generate


# A product's numbers, as `multiply` reads them from a table: addresses, and sizes.
PRODUCT = ("panels", "number", "steps", "stride", "starts", "scales", "bias", "width", "depth")
PANELS, NUMBER, STEPS, STRIDE, STARTS, SCALES, BIAS, WIDTH, DEPTH = range(len(PRODUCT))


@njit_cached()
def multiply(kinds, rows, packed, row_scales, product, floor, tiling, part, outputs):
    """`row_scales (starts + x W^T) scales + bias`, at least `floor`, into (R, F).

    Args:
        kinds: Empty arrays of the dtypes of rows, of weights and of sums, which say the kind of tile.
        rows: Their number R.
        packed: Address of the rows in groups, see `packing.pack_rows`.
        row_scales: (R,) of the sums of each row.
        product: The `PRODUCT` numbers of the weight W (F, D) in panels of 32 outputs.
        floor: The least of an output.
        tiling: A `packing.Tiling`.
        part: Which part of the panels is computed here, and of how many parts.
        outputs: (R, at least F).
    """
    of_rows, of_weights, of_sums = kinds
    many, few, group, step_bytes = tiling
    sums, stride = _room_for_sums(), outputs.strides[0]
    number, steps, width = product[NUMBER], product[STEPS], product[WIDTH]
    group_bytes = steps * step_bytes
    _begin(of_rows, of_weights)
    for panel in range(number * part[0] // part[1], number * (part[0] + 1) // part[1]):
        weight = product[PANELS] + panel * product[STRIDE]
        ahead = weight + product[STRIDE]
        first = panel * PANEL
        start, scales, bias = (
            product[STARTS] + 4 * first,
            product[SCALES] + 4 * first,
            product[BIAS] + 4 * first,
        )
        here = min(PANEL, width - first)
        at_outputs = outputs.ctypes.data + 4 * first
        row = 0
        while row < rows:
            at = packed + row // group * group_bytes + row % group * 4
            output = at_outputs + row * stride
            if rows - row > few:
                tile = many
                _tile_of_many(
                    of_rows, of_weights, at, weight, steps, start, sums, ahead, output, stride
                )
                ahead += product[STRIDE] // FETCHED_PARTS
            else:
                tile = few
                _tile_of_few(
                    of_rows, of_weights, at, weight, steps, start, sums, ahead, output, stride
                )
            for i in range(min(tile, rows - row)):
                total, into = sums + i * 4 * PANEL, output + i * stride
                _finish(of_sums, total, row_scales[row + i], scales, bias, floor, into, here)
            row += tile
    _end(of_rows, of_weights)
