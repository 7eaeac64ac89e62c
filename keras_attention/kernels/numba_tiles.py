"""Tiles of products of matrices for Numba: some rows times 32 outputs, the sums in registers.

Numba's own loops are compiled to vectors of half the width that the processor has, and to none of its
instructions for short numbers. So the innermost loop is written out in LLVM's language: for any
processor in vectors of 16 numbers, for some with instructions that are theirs alone.

A tile is code for addresses and a number, `tile(x, weight, steps, starts, sums)`: some rows, a panel of
weights that is read from its beginning to its end in `steps`, what 32 sums start from, and where those of
each row go.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable
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

# Sums may be formed in any order, that is, in vectors.
SUMS = {"reassoc", "contract", "nsz"}
ONE = np.float32(1.0)

BYTE, SHORT, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()
STORED = {"float32": FLOAT, "bfloat16": SHORT, "int8": BYTE}
SIZES = {"float32": 4, "bfloat16": 2, "int8": 1}

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


@functools.cache
def has_amx() -> bool:
    """Whether this process may multiply tiles of bfloat16."""
    if platform.system() != "Linux" or not has_features("amx-tile", "amx-bf16"):
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0


def float_tile(stored: str, rows: int) -> Body:
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
    return _tile(rows, FLOAT, weights, SIZES[stored], add_products)


def byte_tile(rows: int) -> Body:
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
                builder.store(
                    builder.call(instruction, [factor, column, builder.load(place)]), place
                )

    return _tile(rows, INT, vector, 4, add_products)


def _tile(rows: int, kind: Any, weights: Any, size: int, add_products: Callable[..., None]) -> Body:
    """A tile whose sums are vectors of a `kind`; a weight of a step takes `size` bytes."""
    vector = ir.VectorType(kind, LANES)
    columns = range(VECTORS)

    def body(builder: Any, x: Any, weight: Any, steps: Any, starts: Any, sums: Any) -> None:
        first = [load(builder, _add(builder, starts, 4 * LANES * i), vector) for i in columns]
        places = [
            [cgutils.alloca_once_value(builder, start) for start in first] for _ in range(rows)
        ]
        with cgutils.for_range(builder, builder.udiv(steps, LONG(UNROLLED))) as loop:
            turn = builder.mul(loop.index, LONG(UNROLLED))
            for step in range(UNROLLED):
                index = _add(builder, turn, step)
                panel = builder.add(weight, builder.mul(index, LONG(size * PANEL)))
                group = builder.add(x, builder.mul(index, LONG(4 * GROUP)))

                def number(row: int, group: Any = group) -> Any:
                    # Read just before its use: there are no registers for those of all rows.
                    return splat(builder, load(builder, _add(builder, group, 4 * row), kind))

                loaded = [
                    load(builder, _add(builder, panel, size * LANES * i), weights) for i in columns
                ]
                add_products(builder, number, loaded, places)
        for row in range(rows):
            for i in columns:
                address = _add(builder, sums, 4 * (row * PANEL + i * LANES))
                into = builder.inttoptr(address, vector.as_pointer())
                builder.store(builder.load(places[row][i]), into).align = 4

    return body


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


def amx_tile(rows: int) -> Body:
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

    return body


def _kind(x: Any, panels: Any) -> str:
    """Which tile is meant for rows and weights of these types of Numba's."""
    special = {types.uint16: "amx", types.uint32: "bytes"}
    stored = {types.float32: "float32", types.uint16: "bfloat16", types.int8: "int8"}
    return special.get(x.dtype) or stored[panels.dtype]


def tile_rows(kind: str) -> tuple[int, int]:
    """The rows of a tile where there are many, and where there are few."""
    if kind == "amx":
        return 2 * AMX_ROWS, AMX_ROWS
    # Without AVX-512 registers are fewer, or shorter.
    return (GROUP, FEW_ROWS) if has_features("avx512f") else (2, 2)


def _intrinsic(size: int) -> Any:
    """The tile of the first or second size for the arrays that it is called with, then its arguments."""

    @intrinsic
    def tile(typing_context, x, panels, at, weight, steps, starts, sums):
        kind = _kind(x, panels)
        rows = tile_rows(kind)[size]
        special = {"amx": amx_tile, "bytes": byte_tile}
        body = special[kind](rows) if kind in special else float_tile(kind, rows)

        def generate(context, builder, signature, values):
            body(builder, *values[2:])
            return context.get_dummy_value()

        return types.void(x, panels, *[types.intp] * 5), generate

    return tile


_tile_of_many, _tile_of_few = _intrinsic(0), _intrinsic(1)


@compiled(parallel=True)
def multiply(x, row_scales, panels, starts, scales, bias, floor, many, few, group, outputs):
    """`row_scales (starts + x W^T) scales + bias`, at least `floor`, into (R, F).

    Args:
        x: The rows in groups, which are the first axis, see `numba_kernels.Storage.rows`.
        row_scales: (R,).
        panels: The weight W (F, D) in panels.
        starts: (panels, 32), the numbers that sums start from, of their dtype.
        scales: (F,).
        bias: (F,).
        floor: The least of an output.
        many, few: The rows of a tile, see `tile_rows`.
        group: The rows of a group.
        outputs: (R, F).
    """
    rows, width = outputs.shape
    for panel in numba.prange(len(panels)):
        sums = np.empty((many, PANEL), starts.dtype)
        first = panel * PANEL
        here = min(PANEL, width - first)
        panel_scales, panel_bias = scales[first : first + here], bias[first : first + here]
        weight = panels.ctypes.data + panel * panels.strides[0]
        start = starts.ctypes.data + panel * starts.strides[0]
        row = 0
        while row < rows:
            at = x.ctypes.data + row // group * x.strides[0] + row % group * 4
            number = many
            if rows - row > few:
                _tile_of_many(x, panels, at, weight, panels.shape[1], start, sums.ctypes.data)
            else:
                _tile_of_few(x, panels, at, weight, panels.shape[1], start, sums.ctypes.data)
                number = few
            for i in range(min(number, rows - row)):
                scale, output = row_scales[row + i], outputs[row + i, first : first + here]
                for j in range(here):
                    total = np.float32(sums[i, j]) * (scale * panel_scales[j]) + panel_bias[j]
                    output[j] = floor if total < floor else total
            row += number


def _add(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, LONG(offset))


def load(builder: Any, address: Any, kind: Any) -> Any:
    """What is at an address."""
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


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
