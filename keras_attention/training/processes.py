"""Several processes that train one model on PyTorch, by `torch.distributed`.

On the other backends, and where nobody joined, there is one process, and all of this does nothing.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import functools
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

# Between two things that processes do together, such as two updates; decoding for BLEU lies between.
TIMEOUT_MINUTES = 30.0
TIMEOUT = "KERAS_ATTENTION_TIMEOUT_MINUTES"
# How long after a time-out the store may still take to say what is wrong.
GRACE_SECONDS = 4.0
# The key of the name under which the processes of the newest start find each other.
START = "keras_attention/start"
_in_step = False


class LostProcess(RuntimeError):
    """Another process that trains the same model died, or gives no sign."""


def launched() -> tuple[int, int] | None:
    """Return this process's number and how many there are, as `torchrun` says; None without it."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return None


def timeout_minutes() -> float:
    """How long to wait for other processes before they are taken to be dead."""
    text = os.environ.get(TIMEOUT, TIMEOUT_MINUTES)
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise ValueError(
        f"The environment variable {TIMEOUT} must be minutes above 0. Received: {text!r}"
    )


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Be one of the processes that `torchrun` started, until the block ends."""
    import torch
    import torch.distributed as dist

    if dist.is_initialized():  # The user's own, who ends it, too.
        yield
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        backend = "cpu:gloo,cuda:nccl"
    timeout = datetime.timedelta(minutes=timeout_minutes())
    try:
        store, rank, size = _in_time(lambda: _found_store(timeout), timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise RuntimeError(
            f"Process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} did not find the others at "
            f"{where} ({str(error).splitlines()[0]}). Were all of them started, can they reach that "
            "address, and is its port free?"
        ) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


def _in_time(function: Callable[[], Any], timeout: datetime.timedelta) -> Any:
    """Return what a function returns, or a RuntimeError soon after the time-out.

    PyTorch's store waits without limit for a server that accepts a connection and never answers.
    """
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def call() -> None:
        try:
            done.set_result(function())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(
        target=call, daemon=True
    ).start()  # The end of the process does not wait for it.
    try:
        # The store's own errors, which say more, come at the time-out.
        return done.result(timeout.total_seconds() + GRACE_SECONDS)
    except concurrent.futures.TimeoutError:
        raise RuntimeError(f"no answer in {timeout.total_seconds():g} seconds") from None


def _found_store(timeout: datetime.timedelta) -> tuple[Any, int, int]:
    """Return the store of all processes, the number of this one, and how many there are."""
    names = "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"
    store, rank, size = _rendezvous(timeout, *map(os.environ.get, names))
    return _store_of_this_start(store, rank, size, timeout), rank, size


@functools.cache
def _rendezvous(timeout: datetime.timedelta, *environment: str | None) -> tuple[Any, int, int]:
    """Meet once: a process that joins again would find the store that process 0 is about to leave."""
    from torch.distributed.rendezvous import rendezvous

    return next(rendezvous("env://", timeout=timeout))


def _store_of_this_start(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Return the store of all processes, under a name that process 0 draws anew at each start.

    When `torchrun` starts all again, the store may still hold the addresses of the dead. So each process
    waits until process 0 of the same start has answered it.
    """
    from torch.distributed import PrefixStore

    token = uuid.uuid4().hex
    if rank == 0:
        own = PrefixStore(token, store)
        store.set(START, token)
        for other in range(1, size):
            try:
                own.set(f"answer {other}", own.get(f"here {other}"))
            except RuntimeError as error:
                raise RuntimeError(f"process {other} did not come") from error
        return own
    name, deadline = None, time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        current = store.get(START).decode()
        if current != name:
            name, own = current, PrefixStore(current, store)
            own.set(f"here {rank}", token)
        answer = f"answer {rank}"
        if own.check([answer]) and own.get(answer).decode() == token:
            return own
        time.sleep(0.05)
    raise RuntimeError("process 0 did not answer")


def process_count() -> int:
    """Return the number of processes that train together; 1 where nobody joined."""
    dist = _distributed()
    return 1 if dist is None else dist.get_world_size()


def process_index() -> int:
    """Return the number of this process among them."""
    dist = _distributed()
    return 0 if dist is None else dist.get_rank()


@contextlib.contextmanager
def in_training_step() -> Iterator[None]:
    """Within, `sum_over_processes` sums: what one process alone computes is not of all of them."""
    global _in_step
    _in_step = True
    try:
        yield
    finally:
        _in_step = False


def sum_over_processes(tensors: Sequence[Any]) -> list[Any]:
    """Return the sums of tensors over the processes, within a training step; else the tensors."""
    tensors = list(tensors)
    dist = _distributed()
    if dist is None or not _in_step:
        return tensors
    import torch

    groups: dict[Any, list[int]] = {}
    for number, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(number)
    for numbers in groups.values():
        # One message for all: many small ones cost more than they carry.
        flat = torch.cat([tensors[number].detach().reshape(-1) for number in numbers])
        with _named_errors():
            dist.all_reduce(flat)
        parts = flat.split([tensors[number].numel() for number in numbers])
        for number, part in zip(numbers, parts, strict=True):
            tensors[number] = part.view(tensors[number].shape)
    return tensors


def share_of_process(total: Any) -> Any:
    """Return an equal share of what is of all processes, within a training step; else all of it."""
    return total / process_count() if _in_step else total


def gathered(values: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, stacked; all must call it at the same point, with one shape."""
    import torch
    import torch.distributed as dist

    own = torch.from_numpy(np.array(values))  # On the CPU: the device goes on meanwhile.
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    with _named_errors():
        dist.all_gather(found, own)
    return torch.stack(found).numpy()


def add_sums_of_processes(before: Sequence[Any], variables: Sequence[Any]) -> None:
    """Give Keras variables what all processes have added to them since all had these values."""
    shares = [variable.value - old for variable, old in zip(variables, before, strict=True)]
    for variable, old, total in zip(variables, before, sum_over_processes(shares), strict=True):
        variable.assign(old + total)


def _distributed() -> Any:
    """`torch.distributed`, if processes have joined."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LostProcess(lost_text(process_index(), process_count(), error)) from error


def lost_text(index: int, count: int, error: Exception) -> str:
    """Return what a process says that another one does not answer; of more than two, `torchrun` names it."""
    lost = f"process {1 - index}" if count == 2 else "another one"
    return (
        f"Process {index} of {count} lost {lost}: it died, or gave no sign for too long "
        f"({str(error).splitlines()[0]}). Its own message says why. Started again, the run goes on from "
        "its last checkpoint."
    )
