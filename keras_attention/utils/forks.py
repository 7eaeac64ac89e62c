"""What a forked process can compute: it has none of its parent's threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from keras_attention.utils.backend import running_backend

# The process in which this package first computed with Keras' backend.
_process: int | None = None


class ForkedProcess(RuntimeError):
    """A process was forked after its backend had started, so the backend would wait for ever."""


def is_forked() -> bool:
    """Whether this process was forked after `note_process`."""
    return _process not in (None, os.getpid())


def note_process() -> None:
    """Remember that a backend computes in this process."""
    global _process
    if _process is None:
        _process = os.getpid()


def check_process(computes: bool = True) -> None:
    """Refuse what Keras' backend cannot do in this process; PyTorch goes on with one thread."""
    if "keras" not in sys.modules:
        return
    note_process()
    backend = running_backend()
    if is_forked() and backend == "torch":
        sys.modules["torch"].set_num_threads(1)
    elif is_forked() and computes:
        raise ForkedProcess(
            f"This process was forked after {backend!r} had started, whose threads do not survive a "
            "fork: it would wait for ever. Load the model after the fork only, or start processes with "
            "multiprocessing.get_context('spawn'), or decode by Numba: with a `Translator` that was "
            "made before the fork, or by `Translator.from_spec`, which needs no backend."
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
