"""Keras' backends: which are here, and what their processes need to know before they start."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from harness import Spec

# What makes programs compute as on a processor without later instructions.
EMULATIONS = {
    "avx2": {
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "CT2_FORCE_CPU_ISA": "AVX2",
    }
}
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}


def installed_backends() -> list[str]:
    """Those of Keras' backends that can be imported here; the lightest first."""
    return [name for name in ("jax", "torch", "tensorflow") if importlib.util.find_spec(name)]


def keras_environment(backend: str, checkout: Path | None = None) -> dict[str, str]:
    """Variables of a process that uses a backend; what the user has set stays.

    Args:
        backend: Of Keras.
        checkout: The folder that `keras_attention` is imported from, in place of this checkout.
    """
    wanted = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if backend == "tensorflow":
        wanted["TF_ENABLE_ONEDNN_OPTS"] = "1"  # Off by default where a CPU lacks VNNI.
    elif backend == "jax":
        wanted["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # Several processes share a GPU.
    own = {"KERAS_BACKEND": backend, **{n: os.environ.get(n, v) for n, v in wanted.items()}}
    if checkout is not None:
        # Safe: else the working folder, which may be this checkout, comes before these.
        paths = [str(Path(__file__).resolve().parent.parent), str(checkout.resolve())]
        own |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return own


def keras_spec(
    name: str,
    backend: str,
    target: str,
    options: dict[str, object],
    checkout: Path | None = None,
    **requires: str,
) -> Spec:
    """Return a subject that runs on a Keras backend; of another checkout, its name says so."""
    return Spec(
        f"{name}, {checkout}" if checkout else name,
        target,
        options,
        keras_environment(backend, checkout),
        {backend: backend, "keras": "keras", **requires},
    )
