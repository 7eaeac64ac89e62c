"""How an operation finds the running backend's fast version; devices and engines are chosen elsewhere."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import keras

from keras_attention.ops.reference import DEFINITIONS

# The backends that have fast forms, each in a module of that name in `keras_attention.ops.backends`.
BACKENDS = ("jax", "tensorflow", "torch")


def operation(name: str) -> Callable[..., Any]:
    """Return the running backend's kernel of a name if it has one, else the definition.

    A kernel knows by itself which inputs it is good for, and calls the definition for the others. Whoever
    asks for float64 wants its digits: a kernel that forms sums in float32 leaves that to the definition.
    """
    return kernels().get(name, DEFINITIONS[name])


@functools.cache
def kernels() -> dict[str, Callable[..., Any]]:
    """Return the running backend's fast forms by name, checked once."""
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        return {}
    module = importlib.import_module(f"keras_attention.ops.backends.{backend}")
    unknown = sorted(module.KERNELS.keys() - DEFINITIONS.keys())
    if unknown:  # A misspelt one would never run.
        raise ValueError(
            f"Kernels of {backend} without a definition: {', '.join(unknown)}. There are "
            f"definitions of {', '.join(sorted(DEFINITIONS))}."
        )
    return module.KERNELS


def backend_choice(purpose: str, **choices: Any) -> Any:
    """Return the choice for the running backend, for what is no operation: a training step, an optimizer.

    `choices` has a value for each backend, or a `default` for the others; `purpose` is for the error.

    >>> backend_choice("An example", default="the same for all")
    'the same for all'
    """
    backend = keras.backend.backend()
    if backend in choices:
        return choices[backend]
    if "default" in choices:
        return choices["default"]
    raise ValueError(f"{purpose} runs on {', '.join(choices)}. Received: the backend {backend!r}")
