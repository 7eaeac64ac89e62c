"""The micro-kernel of AMX: products of bfloat16 and of 8-bit integers in registers of 16 rows of 64 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from keras_attention.engine.numba.llvm import BYTE, LINE, LONG, Body, ir

AMX_ROWS = 16
AMX_BYTES = 64  # of a row in a step
# The instruction that multiplies, by the Numba types of rows and weights.
AMX_PRODUCTS = {(types.uint16, types.uint16): "tdpbf16ps", (types.int8, types.int8): "tdpbssd"}
# The sums start from zero. Each step multiplies 16 rows, and in a large tile 16 others (the lines in
# brackets), by two times 16 outputs.
ASSEMBLY = """
    tilezero %tmm0
    tilezero %tmm1
    [tilezero %tmm2]
    [tilezero %tmm3]
2:
    tileloadd ({x},{line},1), %tmm4
    tileloadd ({weight},{line},1), %tmm6
    tileloadd 1024({weight},{line},1), %tmm7
    [tileloadd ({others},{line},1), %tmm5]
    {prefetches}
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
    """Write the micro-kernel of 16 or 32 rows.

    Rows and weights come as tiles of 1,024 bytes: 16 rows of 64 bytes for each step; of a panel two tiles
    for each step, one for each 16 outputs: for 16 groups of depth positions, of four bytes each, the
    outputs' groups. `configure` comes before, `release` after.
    """
    names = ("x", "others", "weight", "steps", "output", "prefetched", "stride", "line", "sums")
    registers = {name: f"${index}" for index, name in enumerate(names)}
    lines, prefetched = 2048 // LINE // parts, registers["prefetched"]
    prefetches = [f"prefetcht1 {LINE * line}({prefetched})" for line in range(lines)]
    prefetches.append(f"add $${LINE * lines}, {prefetched}")
    assembly = ASSEMBLY.format(product=product, prefetches="\n".join(prefetches), **registers)
    instructions = [line.strip() for line in assembly.splitlines()]
    if rows == AMX_ROWS:
        instructions = [line for line in instructions if not line.startswith("[")]
    assembly = "\n".join(line.strip("[]") for line in instructions)
    changed = 6  # registers that come back changed

    def body(builder: Any, *arguments: Any) -> None:
        x, weight, steps, _, sums, prefetched, _, output, stride = arguments
        others = builder.add(x, builder.mul(steps, LONG(AMX_ROWS * AMX_BYTES)))
        kind = ir.FunctionType(ir.LiteralStructType([LONG] * changed), [LONG] * len(names))
        back = ",".join(str(index) for index in range(changed))
        constraints = "=&r," * changed + "r,r,r," + back + ",~{memory},~{flags}"
        code = ir.InlineAsm(kind, assembly, constraints, True)
        inputs = [x, others, weight, steps, output, prefetched]
        builder.call(code, [stride, LONG(AMX_BYTES), sums, *inputs])

    return body


def _amx_only(name: str, write: Callable[[Any], None]) -> Any:
    """Make a function of rows and panels, whose code is written if their types are those of AMX."""

    def function(typing_context, x, panels):
        def generate(context, builder, signature, arguments):
            if (x.dtype, panels.dtype) in AMX_PRODUCTS:
                write(builder)
            return context.get_dummy_value()

        return types.void(x, panels), generate

    function.__name__ = name
    return intrinsic(function)


def _configure(builder: Any) -> None:
    """Set the shapes of this thread's tile registers."""
    # Palette 1; for each of the 8 tiles the bytes of a row and the number of rows.
    palette = bytearray(64)
    palette[0] = 1
    for tile in range(8):
        palette[16 + 2 * tile], palette[48 + tile] = AMX_BYTES, AMX_ROWS
    content = cgutils.create_constant_array(BYTE, palette)
    address = cgutils.global_constant(builder, "amx_palette", content)
    kind = ir.FunctionType(ir.VoidType(), [LONG])
    code = ir.InlineAsm(kind, "ldtilecfg ($0)", "r,~{memory}", True)
    builder.call(code, [builder.ptrtoint(address, LONG)])


def _release(builder: Any) -> None:
    """Release the tile registers, which every switch of threads saves until then."""
    kind = ir.FunctionType(ir.VoidType(), [])
    builder.call(ir.InlineAsm(kind, "tilerelease", "~{memory}", True), [])


configure, release = _amx_only("configure", _configure), _amx_only("release", _release)
