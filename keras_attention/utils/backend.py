"""Which backend runs, by name, and a check of it before Keras imports it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path

from keras_attention.utils.checks import did_you_mean

BACKENDS = ("tensorflow", "jax", "torch")


def running_backend() -> str:
    """Return the name of Keras' backend, for records, messages and engines.

    Code that computes something else on each backend asks `ops.dispatch.backend_choice` instead.
    """
    import keras

    return keras.backend.backend()


def check_backend() -> None:
    """Raise a clear error if the chosen backend is unknown or not installed; Keras' own error is long."""
    if "keras" in sys.modules:
        return
    # Unlike `Path.home`, this does not fail where the system knows no home.
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    settings = Path(home) / "keras.json"
    name = os.environ.get("KERAS_BACKEND")
    if name is None and settings.exists():
        # Keras writes this file at its first start, and reads the backend from it.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            name = json.loads(settings.read_text("utf-8")).get("backend")
    name = name or "tensorflow"
    if name not in BACKENDS:
        raise ImportError(
            f"KERAS_BACKEND, else 'backend' in '{settings}', must be one of {', '.join(BACKENDS)}."
            f"{did_you_mean(str(name), BACKENDS)} Received: {name!r}"
        )
    if importlib.util.find_spec(name) is not None:
        return
    installed = [other for other in BACKENDS if importlib.util.find_spec(other) is not None]
    choice = f", or choose one that is installed: KERAS_BACKEND={installed[0]}" if installed else ""
    raise ImportError(
        f"Keras' backend is {name!r}, and the package '{name}' is not installed. Install it: pip install "
        f"{name}{choice}."
    )
