"""Tiles of products of matrices for Numba: some rows times 32 outputs, the sums in registers.

Numba's own loops are compiled to vectors of half the width that the processor has, and to none of its
instructions for short numbers. So the innermost loop is written out in LLVM's language: for any
processor in vectors of 16 numbers, for some with instructions that are theirs alone.

A tile is a function of addresses and a number, `tile(x, weight, steps, starts, sums)`: some rows, a panel
of weights that is read from its beginning to its end in `steps`, what 32 sums start from, and where those
of each row go.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import platform
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
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
# Steps of a turn of the innermost loop.
UNROLLED = 2

BYTE, SHORT, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()
STORED = {"float32": FLOAT, "bfloat16": SHORT, "int8": BYTE}
SIZES = {"float32": 4, "bfloat16": 2, "int8": 1}

# Linux gives a process the tiles of AMX when it asks for them.
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18


@functools.cache
def has_features(*names: str) -> bool:
    """Whether this processor has LLVM's features of these names."""
    features = llvm.get_host_cpu_features()
    return all(features.get(name, False) for name in names)


@functools.cache
def has_amx() -> bool:
    """Whether this process may multiply tiles of bfloat16."""
    if platform.system() != "Linux" or not has_features("amx-tile", "amx-bf16"):
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0


def float_tile(stored: str, rows: int) -> Any:
    """The first rows of a group of float32 times weights of float32, bfloat16 or 8-bit integers.

    A panel holds for each of `steps` positions of the depth its 32 outputs.
    """
    vector = ir.VectorType(FLOAT, LANES)

    def add_products(builder: Any, number: Any, columns: list[Any], sums: list[Any]) -> None:
        multiply_add = _multiply_add(builder, vector)
        columns = [_as_float(builder, column, stored) for column in columns]
        for row, places in enumerate(sums):
            factor = number(row)
            for column, place in zip(columns, places, strict=True):
                total = builder.call(multiply_add, [factor, column, builder.load(place)])
                builder.store(total, place)

    weights = ir.VectorType(STORED[stored], LANES)
    return _tile(rows, FLOAT, weights, SIZES[stored], add_products)


def byte_tile(rows: int) -> Any:
    """The first rows of a group of bytes without sign times bytes with a sign, by AVX512-VNNI.

    A panel holds for each of `steps` groups of four positions of the depth its 32 outputs' four bytes.
    The sums are integers of 32 bits.
    """
    llvm.initialize_native_asmparser()
    vector = ir.VectorType(INT, LANES)

    def add_products(builder: Any, number: Any, columns: list[Any], sums: list[Any]) -> None:
        instruction = ir.InlineAsm(
            ir.FunctionType(vector, [vector] * 3), "vpdpbusd $2, $1, $0", "=v,v,v,0", False
        )
        for row, places in enumerate(sums):
            factor = number(row)
            for column, place in zip(columns, places, strict=True):
                builder.store(builder.call(instruction, [factor, column, builder.load(place)]), place)

    return _tile(rows, INT, vector, 4, add_products)


def _tile(rows: int, kind: Any, weights: Any, size: int, add_products: Callable[..., None]) -> Any:
    """A tile whose sums are vectors of a `kind`; a weight of a step takes `size` bytes."""
    vector = ir.VectorType(kind, LANES)
    columns = range(VECTORS)

    def body(builder: Any, x: Any, weight: Any, steps: Any, starts: Any, sums: Any) -> None:
        first = [_load(builder, _add(builder, starts, 4 * LANES * i), vector) for i in columns]
        places = [[cgutils.alloca_once_value(builder, start) for start in first] for _ in range(rows)]
        with cgutils.for_range(builder, builder.udiv(steps, LONG(UNROLLED))) as loop:
            turn = builder.mul(loop.index, LONG(UNROLLED))
            for step in range(UNROLLED):
                index = _add(builder, turn, step)
                panel = builder.add(weight, builder.mul(index, LONG(size * PANEL)))
                group = builder.add(x, builder.mul(index, LONG(4 * GROUP)))

                def number(row: int, group: Any = group) -> Any:
                    # Read just before its use: there are no registers for those of all rows.
                    return _splat(builder, _load(builder, _add(builder, group, 4 * row), kind))

                loaded = [
                    _load(builder, _add(builder, panel, size * LANES * i), weights) for i in columns
                ]
                add_products(builder, number, loaded, places)
        for row in range(rows):
            for i in columns:
                address = _add(builder, sums, 4 * (row * PANEL + i * LANES))
                into = builder.inttoptr(address, vector.as_pointer())
                builder.store(builder.load(places[row][i]), into).align = 4

    return _intrinsic(body)


AMX_ROWS = 16
AMX_DEPTH = 32  # positions of a step
# The sums start from zero. In each step 16 rows, and 16 others, meet two times 16 outputs.
AMX_ASSEMBLY = """
    ldtilecfg ({config})
    tilezero %tmm0
    tilezero %tmm1
    [tilezero %tmm2]
    [tilezero %tmm3]
2:
    tileloadd ({x},{row_bytes},1), %tmm4
    tileloadd ({weight},{line},1), %tmm6
    tileloadd 1024({weight},{line},1), %tmm7
    [tileloadd ({others},{row_bytes},1), %tmm5]
    tdpbf16ps %tmm6, %tmm4, %tmm0
    tdpbf16ps %tmm7, %tmm4, %tmm1
    [tdpbf16ps %tmm6, %tmm5, %tmm2]
    [tdpbf16ps %tmm7, %tmm5, %tmm3]
    add $$64, {x}
    add $$64, {others}
    add $$2048, {weight}
    dec {steps}
    jnz 2b
    tilestored %tmm0, ({sums},{two_lines},1)
    tilestored %tmm1, 64({sums},{two_lines},1)
    [tilestored %tmm2, 2048({sums},{two_lines},1)]
    [tilestored %tmm3, 2112({sums},{two_lines},1)]
    tilerelease
"""


def amx_tile(rows: int) -> Any:
    """16 or 32 rows of bfloat16, one behind the other, times bfloat16, by AMX; sums of float32.

    A panel holds for each of `steps` groups of 32 positions of the depth, for one and the other 16
    outputs, for 16 pairs of positions, the outputs' pairs. The sums start from zero.
    """
    llvm.initialize_native_asmparser()
    # Palette 1; of the 8 tiles the bytes of a row and the number of rows.
    palette = bytearray(64)
    palette[0] = 1
    for tile in range(8):
        palette[16 + 2 * tile], palette[48 + tile] = 64, AMX_ROWS
    names = ("x", "others", "weight", "steps", "row_bytes", "sums", "config", "line", "two_lines")
    assembly = AMX_ASSEMBLY.format(**{name: f"${place}" for place, name in enumerate(names)})
    lines = [line.strip() for line in assembly.splitlines()]
    if rows == AMX_ROWS:
        lines = [line for line in lines if not line.startswith("[")]
    assembly = "\n".join(line.strip("[]") for line in lines)

    def body(builder: Any, x: Any, weight: Any, steps: Any, starts: Any, sums: Any) -> None:
        row_bytes = builder.mul(steps, LONG(2 * AMX_DEPTH))
        others = builder.add(x, builder.mul(row_bytes, LONG(AMX_ROWS)))
        content = cgutils.create_constant_array(BYTE, palette)
        config = builder.ptrtoint(cgutils.global_constant(builder, "amx_palette", content), LONG)
        # The first four change, and come back in the registers that they went into.
        kind = ir.FunctionType(ir.LiteralStructType([LONG] * 4), [LONG] * 9)
        constraints = "=&r,=&r,=&r,=&r,r,r,r,r,r,0,1,2,3,~{memory},~{flags}"
        code = ir.InlineAsm(kind, assembly, constraints, True)
        unchanged = [row_bytes, sums, config, LONG(64), LONG(128)]
        builder.call(code, [*unchanged, x, others, weight, steps])

    return _intrinsic(body)


def scores_of_places(width: int, stored: str) -> Any:
    """`scores(query, keys, place_bytes, places, number, scores)`: a query times the keys at places.

    The query has `width` numbers of float32, a key as many of float32 or bfloat16; `places` are of 64 bits.
    """
    kind, vector = ir.VectorType(STORED[stored], width), ir.VectorType(FLOAT, width)

    def body(builder: Any, query: Any, keys: Any, place_bytes: Any, places: Any, number: Any, scores: Any):
        total = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(FLOAT, [FLOAT, vector]), f"llvm.vector.reduce.fadd.v{width}f32"
        )
        query = _load(builder, query, vector)
        with cgutils.for_range(builder, number) as loop:
            place = _load(builder, _at(builder, places, loop.index, 8), LONG)
            key = _load(builder, builder.add(keys, builder.mul(place, place_bytes)), kind)
            products = builder.fmul(query, _as_float(builder, key, stored))
            score = builder.call(total, [FLOAT(0.0), products], fastmath=("reassoc",))
            address = _at(builder, scores, loop.index, 4)
            builder.store(score, builder.inttoptr(address, FLOAT.as_pointer()))

    return _intrinsic(body)


def sum_over_places(width: int, stored: str) -> Any:
    """`sum(weights, values, place_bytes, places, number, output)`: the values at places, weighted."""
    kind, vector = ir.VectorType(STORED[stored], width), ir.VectorType(FLOAT, width)

    def body(builder: Any, weights: Any, values: Any, place_bytes: Any, places: Any, number: Any, output: Any):
        multiply_add = _multiply_add(builder, vector)
        total = cgutils.alloca_once_value(builder, vector([0.0] * width))
        with cgutils.for_range(builder, number) as loop:
            place = _load(builder, _at(builder, places, loop.index, 8), LONG)
            value = _load(builder, builder.add(values, builder.mul(place, place_bytes)), kind)
            weight = _splat(builder, _load(builder, _at(builder, weights, loop.index, 4), FLOAT), width)
            value = _as_float(builder, value, stored)
            builder.store(builder.call(multiply_add, [weight, value, builder.load(total)]), total)
        builder.store(builder.load(total), builder.inttoptr(output, vector.as_pointer())).align = 4

    return _intrinsic(body)


def _intrinsic(body: Callable[..., None]) -> Any:
    """A function for Numba's of the addresses and numbers that `body` takes after its builder."""

    def declare(typing_context, *arguments):
        def generate(context, builder, signature, values):
            body(builder, *values)
            return context.get_dummy_value()

        return types.void(*[types.intp] * len(arguments)), generate

    # Numba asks how many arguments there are; the first is its own.
    declare.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
    return intrinsic(declare)


def _multiply_add(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(vector, [vector] * 3)
    return cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{vector.count}f32")


def _add(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, LONG(offset))


def _at(builder: Any, address: Any, index: Any, size: int) -> Any:
    return builder.add(address, builder.mul(index, LONG(size)))


def _load(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _splat(builder: Any, number: Any, lanes: int = LANES) -> Any:
    """A vector of one number."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, INT(0))
    zeros = ir.Constant(ir.VectorType(INT, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, zeros)


def _as_float(builder: Any, numbers: Any, stored: str) -> Any:
    lanes = numbers.type.count
    integers, floats = ir.VectorType(INT, lanes), ir.VectorType(FLOAT, lanes)
    if stored == "int8":
        return builder.sitofp(builder.sext(numbers, integers), floats)
    if stored == "bfloat16":  # the upper half of a float32
        upper = ir.Constant(integers, [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(numbers, integers), upper), floats)
    return numbers
