"""Runs compiled searches at once in threads of Python, and answers Ctrl-C meanwhile."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

from keras_attention.engine.numba.layers import Model
from keras_attention.engine.numba.threads import ThreadGroup

# Ctrl-C is answered within this time.
ANSWER_SECONDS = 0.5


def run_searches(
    program: Any,
    model: Model,
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
