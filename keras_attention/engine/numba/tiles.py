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

import contextlib
import ctypes
import functools
import platform
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# Outputs of a panel of weights: two vectors.
PANEL = 32
LANES = 16
VECTORS = PANEL // LANES
# Rows that lie side by side: of each step four bytes of one, four of the next, ..
GROUP = 12
# Rows of a tile where there are this few.
FEW_ROWS = 4
# Steps of a turn of the innermost loop.
UNROLLED = 2
# Of many rows each of the first tiles fetches this part of the next panel, of few their only one all of it.
FETCHED_PARTS = 4
LINE = 64  # bytes that a cache fetches at once

# Sums may be formed in any order, that is, in vectors.
SUMS = {"reassoc", "contract", "nsz"}
ONE = np.float32(1.0)

BYTE, SHORT, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()
STORED = {"float32": FLOAT, "bfloat16": SHORT, "int8": BYTE}
SIZES = {"float32": 4, "bfloat16": 2, "int8": 1}
STORED_SUMS = {types.float32: FLOAT, types.int32: INT}

# Linux gives a process the tiles of AMX when it asks for them.
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18

# What writes a tile: of a builder of LLVM's, and the tile's arguments.
Body = Callable[..., None]


def compiled(parallel: bool = False, fastmath: Any = False) -> Callable[[Any], Any]:
    """Numba's compiler; it keeps what it compiled for later processes, where it finds a place to."""

    def decorate(function: Any) -> Any:
        options = {"parallel": parallel, "fastmath": fastmath, "error_model": "numpy"}
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:  # no folder to write to
            return numba.njit(nogil=True, **options)(function)

    return decorate


@functools.cache
def has_features(*names: str) -> bool:
    """Whether Numba compiles for a processor that has LLVM's features of these names."""
    told = numba.config.CPU_FEATURES
    if told is None:
        features = {} if numba.config.CPU_NAME else llvm.get_host_cpu_features()
        return all(features.get(name, False) for name in names)
    return all(f"+{name}" in told.split(",") for name in names)


def has_amx(stored: str) -> bool:
    """Whether this process may multiply tiles of `"bfloat16"` or `"int8"`."""
    feature = {"bfloat16": "amx-bf16", "int8": "amx-int8"}[stored]
    if platform.system() != "Linux" or not has_features("amx-tile", feature):
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0


def float_tile(stored: str, rows: int, parts: int) -> Body:
    """The first rows of a group of float32 times weights of float32, bfloat16 or 8-bit integers.

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


# Products of the numbers in four bytes at once: the instruction, and the kind of its sums.
DOT_PRODUCTS = {"bytes": ("vpdpbusd", INT), "pairs": ("vdpbf16ps", FLOAT)}


def dot_tile(kind: str, rows: int, parts: int) -> Body:
    """The first rows of a group of short numbers times such weights, four bytes of each at once.

    By AVX512-VNNI of bytes without sign times bytes with a sign, or by AVX512-BF16 of pairs of bfloat16.
    A panel holds for each of `steps` groups of positions of the depth its 32 outputs' four bytes.
    """
    llvm.initialize_native_asmparser()
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
                fetch(builder, _add(builder, of_row, 4 * LANES * i), is_written=True)
        first = [load(builder, _add(builder, starts, 4 * LANES * i), vector) for i in columns]
        places = [
            [cgutils.alloca_once_value(builder, start) for start in first] for _ in range(rows)
        ]
        with cgutils.for_range(builder, builder.udiv(steps, LONG(UNROLLED))) as loop:
            fetched = builder.add(ahead, builder.mul(loop.index, LONG(fetched_lines * LINE)))
            for line in range(fetched_lines):
                fetch(builder, _add(builder, fetched, line * LINE))
            turn = builder.mul(loop.index, LONG(UNROLLED))
            for step in range(UNROLLED):
                index = _add(builder, turn, step)
                panel = builder.add(weight, builder.mul(index, LONG(size * PANEL)))
                group = builder.add(x, builder.mul(index, LONG(4 * GROUP)))

                def number(row: int, group: Any = group) -> Any:
                    # Read just before its use: there are no registers for those of all rows.
                    return splat(builder, load(builder, _add(builder, group, 4 * row), of_rows))

                loaded = [
                    load(builder, _add(builder, panel, size * LANES * i), weights) for i in columns
                ]
                add_products(builder, number, loaded, places)
        for row in range(rows):
            for i in columns:
                address = _add(builder, sums, 4 * (row * PANEL + i * LANES))
                store(builder, builder.load(places[row][i]), address)

    return body


AMX_ROWS = 16
AMX_BYTES = 64  # of a row in a step
# The sums start from zero. In each step 16 rows, and 16 others, meet two times 16 outputs.
AMX_ASSEMBLY = """
    tilezero %tmm0
    tilezero %tmm1
    [tilezero %tmm2]
    [tilezero %tmm3]
2:
    tileloadd ({x},{line},1), %tmm4
    tileloadd ({weight},{line},1), %tmm6
    tileloadd 1024({weight},{line},1), %tmm7
    [tileloadd ({others},{line},1), %tmm5]
    {fetch_ahead}
    prefetchw ({output})
    prefetchw 64({output})
    prefetchw ({output},{stride},1)
    prefetchw 64({output},{stride},1)
    {product} %tmm6, %tmm4, %tmm0
    {product} %tmm7, %tmm4, %tmm1
    [{product} %tmm6, %tmm5, %tmm2]
    [{product} %tmm7, %tmm5, %tmm3]
    lea ({output},{stride},2), {output}
    add $$1024, {x}
    add $$1024, {others}
    add $$2048, {weight}
    dec {steps}
    jnz 2b
    mov $$128, {steps}
    tilestored %tmm0, ({sums},{steps},1)
    tilestored %tmm1, 64({sums},{steps},1)
    [tilestored %tmm2, 2048({sums},{steps},1)]
    [tilestored %tmm3, 2112({sums},{steps},1)]
"""


def amx_tile(product: str, rows: int, parts: int) -> Body:
    """16 or 32 rows times weights by AMX: `tdpbf16ps` of bfloat16, `tdpbssd` of bytes with a sign.

    Rows and weights come as tiles of 1,024 bytes: of 16 rows the numbers of a step; of a panel for each
    step, for one and the other 16 outputs, for 16 groups of positions of the depth, each of four bytes,
    the outputs' groups. The sums start from zero. `amx_configure` comes before, `amx_release` after.
    """
    llvm.initialize_native_asmparser()
    names = ("x", "others", "weight", "steps", "output", "ahead", "stride", "line", "sums")
    places = {name: f"${place}" for place, name in enumerate(names)}
    lines = 2048 // LINE // parts
    ahead = [f"prefetcht1 {LINE * line}({places['ahead']})" for line in range(lines)]
    ahead.append(f"add $${LINE * lines}, {places['ahead']}")
    assembly = AMX_ASSEMBLY.format(product=product, fetch_ahead="\n".join(ahead), **places)
    instructions = [line.strip() for line in assembly.splitlines()]
    if rows == AMX_ROWS:
        instructions = [line for line in instructions if not line.startswith("[")]
    assembly = "\n".join(line.strip("[]") for line in instructions)
    changing = 6

    def body(builder: Any, *arguments: Any) -> None:
        x, weight, steps, _, sums, ahead, output, stride = arguments
        others = builder.add(x, builder.mul(steps, LONG(AMX_ROWS * AMX_BYTES)))
        # What changes comes back in the registers that it went into.
        kind = ir.FunctionType(ir.LiteralStructType([LONG] * changing), [LONG] * len(names))
        back = ",".join(str(place) for place in range(changing))
        constraints = "=&r," * changing + "r,r,r," + back + ",~{memory},~{flags}"
        code = ir.InlineAsm(kind, assembly, constraints, True)
        changed = [x, others, weight, steps, output, ahead]
        builder.call(code, [stride, LONG(AMX_BYTES), sums, *changed])

    return body


@intrinsic
def _begin(typing_context, x, panels):
    """What a thread needs before its tiles of these."""

    def generate(context, builder, signature, values):
        if _kind(x, panels) in AMX_PRODUCTS:
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
        if _kind(x, panels) in AMX_PRODUCTS:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(ir.InlineAsm(kind, "tilerelease", "~{memory}", True), [])
        return context.get_dummy_value()

    return types.void(x, panels), generate


# A kind of tile by what the rows are of, where that alone tells it, else by what the weights are of.
AMX_PRODUCTS = {"amx bfloat16": "tdpbf16ps", "amx int8": "tdpbssd"}
KINDS_OF_ROWS = {
    types.uint16: "amx bfloat16",
    types.int8: "amx int8",
    types.uint32: "bytes",
    types.int32: "pairs",
}
KINDS_OF_WEIGHTS = {types.float32: "float32", types.uint16: "bfloat16", types.int8: "int8"}


def _kind(x: Any, panels: Any) -> str:
    """Which tile is meant for rows and weights of these types of Numba's."""
    return KINDS_OF_ROWS.get(x.dtype) or KINDS_OF_WEIGHTS[panels.dtype]


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
        kind = _kind(x, panels)
        rows = tile_rows(kind)[size]
        if kind in AMX_PRODUCTS:
            body = amx_tile(AMX_PRODUCTS[kind], rows, parts)
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


@compiled(parallel=True)
def multiply(
    x, row_scales, panels, starts, scales, bias, floor, many, few, group, threads, outputs
):
    """`row_scales (starts + x W^T) scales + bias`, at least `floor`, into (parts, R, F / parts).

    Args:
        x: The rows in groups, which are the first axis, see `numba_kernels.Storage.rows`.
        row_scales: (R,).
        panels: The weight W (F, D) in panels.
        starts: (panels, 32), the numbers that sums start from, of their dtype.
        scales: (panels, 32).
        bias: (panels, 32).
        floor: The least of an output.
        many, few: The rows of a tile, see `tile_rows`.
        group: The rows of a group.
        threads: Among how many the panels are divided.
        outputs: (parts, R, F / parts); if there is more than one part, of whole panels.
    """
    _, rows, width = outputs.shape
    part_panels = (width + PANEL - 1) // PANEL
    for thread in numba.prange(threads):
        sums = np.empty((many, PANEL), starts.dtype)
        at_sums, sums_stride, stride = sums.ctypes.data, sums.strides[0], outputs.strides[1]
        _begin(x, panels)
        for panel in range(len(panels) * thread // threads, len(panels) * (thread + 1) // threads):
            weight = panels.ctypes.data + panel * panels.strides[0]
            ahead = weight + panels.strides[0]
            start = starts.ctypes.data + panel * starts.strides[0]
            panel_scales = scales.ctypes.data + panel * scales.strides[0]
            panel_bias = bias.ctypes.data + panel * bias.strides[0]
            part, first = panel // part_panels, panel % part_panels * PANEL
            here = min(PANEL, width - first)
            at_outputs = outputs.ctypes.data + part * outputs.strides[0] + 4 * first
            row = 0
            while row < rows:
                at = x.ctypes.data + row // group * x.strides[0] + row % group * 4
                output = at_outputs + row * stride
                if rows - row > few:
                    number = many
                    _tile_of_many(
                        x,
                        panels,
                        at,
                        weight,
                        panels.shape[1],
                        start,
                        at_sums,
                        ahead,
                        output,
                        stride,
                    )
                    ahead += panels.strides[0] // FETCHED_PARTS
                else:
                    number = few
                    _tile_of_few(
                        x,
                        panels,
                        at,
                        weight,
                        panels.shape[1],
                        start,
                        at_sums,
                        ahead,
                        output,
                        stride,
                    )
                for i in range(min(number, rows - row)):
                    total = at_sums + i * sums_stride
                    scale, into = row_scales[row + i], output + i * stride
                    _finish(sums, total, scale, panel_scales, panel_bias, floor, into, here)
                row += number
        _end(x, panels)


def _add(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, LONG(offset))


@contextlib.contextmanager
def vectors(builder: Any, size: Any) -> Iterator[tuple[Any, Any]]:
    """A loop over vectors of numbers: the index of a vector's first, and which of its places are there."""
    number = builder.udiv(_add(builder, size, LANES - 1), LONG(LANES))
    kind = ir.VectorType(INT, LANES)
    with cgutils.for_range(builder, number) as loop:
        index = builder.mul(loop.index, LONG(LANES))
        rest = builder.trunc(builder.sub(size, index), INT)
        yield index, builder.icmp_signed("<", kind([*range(LANES)]), splat(builder, rest))


def number_at(builder: Any, address: Any, index: Any, size: int) -> Any:
    """The address of a number of `size` bytes among others."""
    return builder.add(address, builder.mul(index, LONG(size)))


def load(builder: Any, address: Any, kind: Any, is_there: Any = None, otherwise: Any = None) -> Any:
    """What is at an address; of a vector perhaps only the places that are there."""
    pointer = builder.inttoptr(address, kind.as_pointer())
    if is_there is not None:
        arguments = [pointer, INT(1), is_there, otherwise or ir.Constant(kind, None)]
        return _masked(builder, "load", kind, kind, arguments)
    loaded = builder.load(pointer)
    loaded.align = 1
    return loaded


def store(builder: Any, numbers: Any, address: Any, is_there: Any = None) -> None:
    """Writes a vector to an address, perhaps only the places that are there."""
    pointer = builder.inttoptr(address, numbers.type.as_pointer())
    if is_there is not None:
        arguments = [numbers, pointer, INT(1), is_there]
        _masked(builder, "store", ir.VoidType(), numbers.type, arguments)
    else:
        builder.store(numbers, pointer).align = 1


def _masked(builder: Any, name: str, result: Any, vector: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    of = f"v{vector.count}" + {FLOAT: "f32", INT: "i32", SHORT: "i16"}[vector.element]
    function = cgutils.get_or_insert_function(
        builder.module, kind, f"llvm.masked.{name}.{of}.p0{of}"
    )
    return builder.call(function, arguments)


def fetch(builder: Any, address: Any, is_written: bool = False) -> None:
    """Asks for the line of the cache at an address, which may be any, to be read or written."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), INT, INT, INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    line = builder.inttoptr(address, BYTE.as_pointer())
    # Into the nearest cache, or into the one behind; of data.
    locality = 3 if is_written else 2
    builder.call(function, [line, INT(int(is_written)), INT(locality), INT(1)])


def splat(builder: Any, number: Any, lanes: int = LANES) -> Any:
    """A vector of one number."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, INT(0))
    zeros = ir.Constant(ir.VectorType(INT, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, zeros)


def multiply_add(builder: Any, one: Any, other: Any, more: Any) -> Any:
    """`one * other + more` of vectors of float32, rounded once."""
    kind = ir.FunctionType(one.type, [one.type] * 3)
    name = f"llvm.fma.v{one.type.count}f32"
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, name), [one, other, more]
    )


def as_float(builder: Any, numbers: Any, stored: str) -> Any:
    """A vector of stored numbers as float32."""
    lanes = numbers.type.count
    integers, floats = ir.VectorType(INT, lanes), ir.VectorType(FLOAT, lanes)
    if stored == "int8":
        return builder.sitofp(builder.sext(numbers, integers), floats)
    if stored == "bfloat16":  # the upper half of a float32
        upper = ir.Constant(integers, [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(numbers, integers), upper), floats)
    return numbers
