"""Threads that search together, with barriers between the stages; meanwhile Python answers Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from keras_attention.engine.numba.compiling import njit
from keras_attention.engine.numba.llvm import LONG, ir

# How often a waiting thread looks at the barrier before it yields its processor, and before it sleeps.
SPINS, YIELDS, SLEEP_MICROSECONDS = 4000, 40, 100
_yield_processor = types.ExternalFunction("sched_yield", types.int32())
_sleep = types.ExternalFunction("usleep", types.int32(types.int32))


class ThreadGroup(NamedTuple):
    """A group of threads that search some sentences together, as one of them sees it."""

    rank: int  # which thread this is
    size: int
    barrier: int  # address of two zeros of 8 bytes: the threads that wait, and the barriers passed
    stop: int  # address of a number that is not 0 when the result is no longer wanted
    scores: np.ndarray  # float32 (slots,), this thread's workspace for the scores of an attention


@njit
def row_range(group, rows, multiple):
    """Return the first and last row of this thread, in whole multiples of so many rows."""
    blocks = (rows + multiple - 1) // multiple
    first = blocks * group.rank // group.size * multiple
    return first, min(rows, blocks * (group.rank + 1) // group.size * multiple)


@njit
def wait(group):
    """Wait until all threads of the group are here."""
    if group.size > 1:
        pass_barrier(group.barrier, group.size)


@njit
def is_stopped(group):
    """Return whether long computations may be skipped; threads may see it at different times."""
    return _load(group.stop) != 0


@njit
def pass_barrier(barrier, size):
    """Return when so many threads have come here.

    A waiting thread spins for some microseconds, then yields, then sleeps: if the machine is busy, it
    must not keep a thread that it waits for from running.
    """
    passed = barrier + 8
    number = _load(passed)
    if _add(barrier, 1) == size - 1:
        _add(barrier, -size)
        _add(passed, 1)
        return
    looks = 0
    while _load(passed) == number:
        looks += 1
        if looks > SPINS + YIELDS:
            _sleep(SLEEP_MICROSECONDS)
        elif looks > SPINS:
            _yield_processor()
        _pause()


@intrinsic
def _load(typing_context, address):
    """Load a number of 8 bytes that another thread may write."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], LONG.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.intp), generate


@intrinsic
def _add(typing_context, address, number):
    """Add to a number of 8 bytes at an address at once; return what it was."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], LONG.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "acq_rel")

    return types.int64(types.intp, types.int64), generate


@intrinsic
def _pause(typing_context):
    """Tell the processor that this thread spins."""

    def generate(context, builder, signature, arguments):
        if platform.machine() in ("x86_64", "AMD64"):
            code = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "pause", "", True)
            builder.call(code, [])
        return context.get_dummy_value()

    return types.void(), generate


# Ctrl-C is answered within this time.
ANSWER_SECONDS = 0.5


def run_searches(
    program: Any,
    model: Any,
    searches: Sequence[tuple[Any, ...]],
    size: tuple[int, int],
    watch: Callable[[], None] | None = None,
) -> None:
    """Run searches at once, and call a function, if there is one, before and every now and then.

    Each is run by a group of so many threads, and an attention reads at most so many slots: `size`.

    The caller's thread waits: Python answers Ctrl-C in its first thread only, and not within
    compiled code.
    """
    threads, slots = size
    barriers, stop = np.zeros((len(searches), 2), "int64"), np.zeros(1, "int64")
    scores = np.empty((len(searches), threads, slots), "float32")

    def arguments(group: int, rank: int) -> tuple[Any, ...]:
        encoder_workspace, workspace, *rest = searches[group]
        shared = (barriers[group].ctypes.data, stop.ctypes.data)
        member = ThreadGroup(rank, threads, *shared, scores[group, rank])
        return model, encoder_workspace, workspace, member, *rest

    def run() -> None:
        pool = _pool(os.getpid())
        first, *others = itertools.product(range(len(searches)), range(threads))
        running = [pool.submit(program, *arguments(*member)) for member in others]
        program(*arguments(*first))
        for one in running:
            one.result()

    leader = _leader(os.getpid())
    try:
        searching = leader.submit(run)
        while not searching.done():
            if watch is not None:
                watch()
            # A signal that another thread received does not wake this one: the timeout does.
            with contextlib.suppress(TimeoutError):
                searching.result(timeout=ANSWER_SECONDS)
        searching.result()
    except BaseException:
        stop[0] = 1
        leader.submit(int).result()  # Its turn comes when no thread reads the arrays.
        raise


@functools.cache
def _leader(process: int) -> ThreadPoolExecutor:
    """Return the thread of a process that starts searches, one after the other: each takes all threads.

    A forked process inherits no threads and makes its own.
    """
    return ThreadPoolExecutor(1, "keras_attention")


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads beside the leader; they sleep until there is work."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "keras_attention")
