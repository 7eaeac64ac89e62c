"""The tensors of variables, known within a training step: Keras asks a dozen questions at each reading."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any


class OfThread(threading.local):
    """What a thread knows during a step: the tensor of each variable, by the id of the variable."""

    tensors: Mapping[int, Any] = {}


_own = OfThread()


@contextlib.contextmanager
def known(tensors: Mapping[int, Any]) -> Iterator[None]:
    """Within this context these are the tensors of variables, by the variables' `id`.

    Keras changes the tensor of a variable in place, so it stays the same one. No variable may be cast
    (a mixed dtype policy), and none may be in a `keras.StatelessScope`.
    """
    before, _own.tensors = _own.tensors, tensors
    try:
        yield
    finally:
        _own.tensors = before


def is_known(variable: Any) -> bool:
    """Whether a variable's tensor is known, and so may be written to."""
    return id(variable) in _own.tensors


def tensor_of(variable: Any) -> Any:
    """Return `variable.value`."""
    found = _own.tensors.get(id(variable))
    return variable.value if found is None else found
