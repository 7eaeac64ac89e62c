"""Short forms for LLVM's language, in which the innermost loops are written: vectors, masks, prefetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from keras_attention.engine.numba.compiling import njit

LANES = 16  # numbers of a vector
LINE = 64  # bytes of a cache line

BYTE, SHORT, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()
STORED = {"float32": FLOAT, "bfloat16": SHORT, "int8": BYTE}
SIZES = {"float32": 4, "bfloat16": 2, "int8": 1}

# The code of a micro-kernel: a function that writes it, of LLVM's builder and the kernel's arguments.
Body = Callable[..., None]


@njit
def address(matrix, row, column):
    """Return the address of a number of a matrix."""
    return matrix.ctypes.data + row * matrix.strides[0] + column * matrix.itemsize


def at(builder: Any, address: Any, index: Any, size: int = 1) -> Any:
    """Return an address `index` items of `size` bytes further."""
    if isinstance(index, int):
        return builder.add(address, LONG(index * size))
    return builder.add(address, builder.mul(index, LONG(size)))


def vectors(builder: Any, width: Any, body: Callable[[Any, Any], None], lanes: int = LANES) -> None:
    """Write the code for the vectors of `width` numbers: `body(index of the first, mask)` for each.

    Only the last one has a mask, if it is not whole, and else None: AMD's processors with AVX2 are slow to
    store with a mask.
    """
    if width == lanes:
        body(LONG(0), None)
        return
    whole = builder.udiv(width, LONG(lanes))
    with cgutils.for_range(builder, whole) as loop:
        body(builder.mul(loop.index, LONG(lanes)), None)
    index = builder.mul(whole, LONG(lanes))
    rest = builder.sub(width, index)
    with builder.if_then(builder.icmp_signed(">", rest, LONG(0))):
        numbers = ir.VectorType(INT, lanes)([*range(lanes)])
        rest = splat(builder, builder.trunc(rest, INT), lanes)
        body(index, builder.icmp_signed("<", numbers, rest))


def load(builder: Any, address: Any, kind: Any, mask: Any = None, otherwise: Any = None) -> Any:
    """Load from an address; of a vector with a mask only where it is true, zeros or others elsewhere."""
    pointer = builder.inttoptr(address, kind.as_pointer())
    if mask is not None:
        arguments = [pointer, INT(1), mask, otherwise or ir.Constant(kind, None)]
        return _masked(builder, "load", kind, kind, arguments)
    loaded = builder.load(pointer)
    loaded.align = 1
    return loaded


def store(builder: Any, numbers: Any, address: Any, mask: Any = None) -> None:
    """Store at an address; of a vector with a mask only where it is true."""
    pointer = builder.inttoptr(address, numbers.type.as_pointer())
    if mask is not None:
        _masked(builder, "store", ir.VoidType(), numbers.type, [numbers, pointer, INT(1), mask])
    else:
        builder.store(numbers, pointer).align = 1


def _masked(builder: Any, name: str, result: Any, vector: Any, arguments: list[Any]) -> Any:
    suffix = f"v{vector.count}" + {FLOAT: "f32", INT: "i32", SHORT: "i16"}[vector.element]
    return call(builder, f"llvm.masked.{name}.{suffix}.p0{suffix}", result, arguments)


def call(builder: Any, name: str, result: Any, arguments: list[Any], **options: Any) -> Any:
    """Call a function of LLVM's by its name."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments, **options)


def prefetch(builder: Any, address: Any, for_write: bool = False) -> None:
    """Prefetch the cache line at any address: to read into the second cache, to write into the first."""
    line = builder.inttoptr(address, BYTE.as_pointer())
    options = [INT(int(for_write)), INT(3 if for_write else 2), INT(1)]
    call(builder, "llvm.prefetch.p0i8", ir.VoidType(), [line, *options])


def splat(builder: Any, number: Any, lanes: int = LANES) -> Any:
    """Return a vector that repeats one number."""
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, INT(0))
    zeros = ir.Constant(ir.VectorType(INT, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, zeros)


def multiply_add(builder: Any, one: Any, other: Any, more: Any) -> Any:
    """Return `one * other + more` of vectors of float32, rounded once."""
    return call(builder, f"llvm.fma.v{one.type.count}f32", one.type, [one, other, more])


def as_float(builder: Any, numbers: Any, stored: str) -> Any:
    """Convert a vector of stored numbers to float32."""
    if stored == "bfloat16":  # the upper half of a float32
        lanes = numbers.type.count
        integers, floats = ir.VectorType(INT, lanes), ir.VectorType(FLOAT, lanes)
        upper = ir.Constant(integers, [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(numbers, integers), upper), floats)
    if stored == "int8":
        return builder.sitofp(numbers, ir.VectorType(FLOAT, numbers.type.count))
    return numbers
