"""The tile of AMX: products of bfloat16 and of 8-bit integers in registers of 16 rows of 64 bytes."""

from __future__ import annotations

from typing import Any

from keras_attention.engine.numba.llvm import LINE, LONG, Body, ir

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
    the outputs' groups. The tiles' shapes are set before and given back after (`tiles.multiply`).
    """
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
