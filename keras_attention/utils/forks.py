"""What a forked process can compute: it has none of its parent's threads."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from keras_attention.utils.backend import running_backend

# Whether this process was forked after `note_process`, and PyTorch had used a GPU by then.
is_forked = had_gpu = False


class ForkedProcess(RuntimeError):
    """A process was forked after its backend had started, so the backend would wait for ever."""


@functools.cache
def note_process() -> None:
    """Let processes that are forked from now on know that a backend computed before."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_note_gpu, after_in_child=_note_fork)


def _note_gpu() -> None:
    global had_gpu
    torch = sys.modules.get("torch")
    had_gpu = had_gpu or (torch is not None and torch.cuda.is_initialized())


def _note_fork() -> None:
    global is_forked
    is_forked = True


def check_process() -> None:
    """Refuse to compute where Keras' backend cannot; PyTorch on a CPU goes on with one thread."""
    if "keras" not in sys.modules:
        return
    note_process()
    if not is_forked:
        return
    backend = running_backend()
    if backend == "torch" and not had_gpu:
        sys.modules["torch"].set_num_threads(1)
    else:
        raise ForkedProcess(
            f"This process was forked after {backend!r} had started, whose threads and GPUs do not "
            "survive a fork: it would fail or wait for ever. Load the model after the fork only, or start "
            "processes with multiprocessing.get_context('spawn'), or decode by Numba: with a "
            "`Translator` that was made before the fork, or with one of "
            "`keras_attention_light.load_translator`, which needs no backend."
        )


class _Refused:
    """Stands for what a forked process cannot have: any use of it raises the error."""

    def __init__(self, error: ForkedProcess):
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise vars(self)["_error"]


def unless_forked(make: Callable[..., Any], *arguments: Any) -> Any:
    """Return what is made of a pickle; what cannot be made in a forked process says so at its first use.

    A pool's worker that dies of a task that it cannot read is started again, for ever.
    """
    try:
        return make(*arguments)
    except ForkedProcess as error:
        return _Refused(error)
