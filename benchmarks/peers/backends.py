"""Keras' backends: which are here, and what their processes need to know before they start."""

from __future__ import annotations

import importlib.util
import os

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}


def installed_backends() -> list[str]:
    """Those of Keras' backends that can be imported here; the lightest first."""
    return [name for name in ("jax", "torch", "tensorflow") if importlib.util.find_spec(name)]


def keras_environment(backend: str) -> dict[str, str]:
    """Variables of a process that uses a backend; what the user has set stays."""
    wanted = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if backend == "tensorflow":
        wanted["TF_ENABLE_ONEDNN_OPTS"] = "1"  # Off by default where a CPU lacks VNNI.
    elif backend == "jax":
        wanted["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # Several processes share a GPU.
    return {"KERAS_BACKEND": backend, **{n: os.environ.get(n, v) for n, v in wanted.items()}}
