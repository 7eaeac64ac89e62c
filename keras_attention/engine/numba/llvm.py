"""What Numba's own language lacks, in LLVM's: vectors, masks, fetches; and which processor it is for.

Only this module imports llvmlite.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import platform
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
LINE = 64  # bytes that a cache fetches at once

# Sums may be formed in any order, that is, in vectors.
ANY_ORDER = {"reassoc", "contract", "nsz"}

BYTE, SHORT, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT = ir.FloatType()
ONE = np.float32(1.0)
STORED = {"float32": FLOAT, "bfloat16": SHORT}
SIZES = {"float32": 4, "bfloat16": 2, "int8": 1}

# What writes a tile: of a builder of LLVM's, and the tile's arguments.
Body = Callable[..., None]

# Linux gives a process the tiles of AMX when it asks for them.
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18
# Looks at a barrier's number before the processor is given away, and before the thread sleeps.
SPINS, YIELDS, SLEEP_MICROSECONDS = 4000, 40, 100


def njit_cached(fastmath: Any = False) -> Callable[[Any], Any]:
    """Numba's compiler; it keeps what it compiled for later processes, where it finds a place to.

    Compiled code allocates no array. So it need not count who uses which: all threads together would
    count for every call and every slice, and what is left in an address would be freed.
    """

    def decorate(function: Any) -> Any:
        # Also what comes from the disk, and was not written here, may hold assembly.
        llvm.initialize_native_asmparser()
        options = {"fastmath": fastmath, "error_model": "numpy", "_nrt": False}
        given = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(_cache_folder(given))
        try:
            return _with_own_files(numba.njit(cache=True, nogil=True, **options)(function))
        except (RuntimeError, AttributeError):  # no folder to write to, or another Numba's files
            return numba.njit(nogil=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = given

    return decorate


def _with_own_files(function: Any) -> Any:
    """Each result that is kept gets a name that no other process gives.

    Numba numbers them by what its index names. Two processes that compile at once, for other types, would
    take the same number, and a third one would run what was compiled for the wrong types.
    """
    files = function._cache._cache_file
    first = files._data_name_pattern.removesuffix(".{number:d}.nbc")
    files._data_name = lambda number: f"{first}.{uuid.uuid4().hex}.nbc"
    return function


@functools.cache
def _cache_folder(given: str) -> Path:
    """Where compiled code is kept: a folder for each content of the modules beside this one.

    Numba asks only whether the file of the function itself has changed, but a function holds the compiled
    code of all that it calls.
    """
    content = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        content.update(file.read_bytes())
    name = f"keras_attention-{content.hexdigest()[:16]}"
    return (Path(given) if given else Path(__file__).parent / "__pycache__") / name


@njit_cached()
def address(matrix, row, column):
    """Of a number of a matrix."""
    return matrix.ctypes.data + row * matrix.strides[0] + column * matrix.itemsize


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


def add(builder: Any, address: Any, offset: int) -> Any:
    """An address some bytes further."""
    return builder.add(address, LONG(offset))


@contextlib.contextmanager
def vectors(builder: Any, size: Any) -> Iterator[tuple[Any, Any]]:
    """A loop over vectors of numbers: the index of a vector's first, and which of its places are there."""
    number = builder.udiv(add(builder, size, LANES - 1), LONG(LANES))
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
    if stored == "bfloat16":  # the upper half of a float32
        lanes = numbers.type.count
        integers, floats = ir.VectorType(INT, lanes), ir.VectorType(FLOAT, lanes)
        upper = ir.Constant(integers, [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(numbers, integers), upper), floats)
    return numbers


@intrinsic
def wait_for_all(typing_context, barrier, threads):
    """Returns when all threads have come here; `barrier` is the address of two numbers of 8 bytes, zero.

    A thread that waits looks for some microseconds, then gives its processor away, then sleeps: who
    waits for a thread that another process keeps from running must not keep it from running, too.
    """

    def generate(context, builder, signature, arguments):
        barrier, threads = arguments
        arrived = builder.inttoptr(barrier, LONG.as_pointer())
        round_ = builder.inttoptr(builder.add(barrier, LONG(8)), LONG.as_pointer())
        present = builder.load_atomic(round_, "acquire", 8)
        before = builder.atomic_rmw("add", arrived, LONG(1), "acq_rel")
        is_last = builder.icmp_signed("==", before, builder.sub(threads, LONG(1)))
        with builder.if_else(is_last) as (then, otherwise):
            with then:
                builder.store_atomic(LONG(0), arrived, "monotonic", 8)
                builder.store_atomic(builder.add(present, LONG(1)), round_, "release", 8)
            with otherwise:
                _wait_while(builder, round_, present)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic
def number_now(typing_context, address):
    """The 8-byte number at an address, which another thread may have written meanwhile."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], LONG.as_pointer())
        return builder.load_atomic(pointer, "monotonic", 8)

    return types.int64(types.intp), generate


def _wait_while(builder: Any, address: Any, number: Any) -> None:
    """Waits as long as this number is at the address."""
    turns = cgutils.alloca_once_value(builder, LONG(0))
    check = builder.append_basic_block("check")
    wait = builder.append_basic_block("wait")
    done = builder.append_basic_block("done")
    builder.branch(check)
    builder.position_at_end(check)
    is_same = builder.icmp_signed("==", builder.load_atomic(address, "acquire", 8), number)
    builder.cbranch(is_same, wait, done)
    builder.position_at_end(wait)
    turn = builder.add(builder.load(turns), LONG(1))
    builder.store(turn, turns)
    with builder.if_then(builder.icmp_signed(">", turn, LONG(SPINS)), likely=False):
        has_yielded = builder.icmp_signed(">", turn, LONG(SPINS + YIELDS))
        with builder.if_else(has_yielded) as (then, otherwise):
            with then:
                kind = ir.FunctionType(INT, [INT])
                sleep = cgutils.get_or_insert_function(builder.module, kind, "usleep")
                builder.call(sleep, [INT(SLEEP_MICROSECONDS)])
            with otherwise:
                kind = ir.FunctionType(INT, [])
                give_away = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")
                builder.call(give_away, [])
    if platform.machine() in ("x86_64", "AMD64"):
        pause = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "pause", "", True)
        builder.call(pause, [])
    builder.branch(check)
    builder.position_at_end(done)


@intrinsic
def copy_floats(typing_context, numbers, output, size):
    """Copies float32 from one address to another."""

    def generate(context, builder, signature, arguments):
        numbers, output, size = arguments
        kind = ir.VectorType(FLOAT, LANES)
        with vectors(builder, size) as (index, is_there):
            part = load(builder, number_at(builder, numbers, index, 4), kind, is_there)
            store(builder, part, number_at(builder, output, index, 4), is_there)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate
