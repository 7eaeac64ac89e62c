"""Where and when a run took place, for its record."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    "keras-attention", "keras", "tensorflow", "jax", "jaxlib", "torch", "numpy", "transformers", "keras-hub",
    "ctranslate2",
)  # fmt: skip
# What decides which products a CPU can do fast.
CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def run_facts() -> dict[str, Any]:
    """Command, date, commit, machine, versions of the packages and the variables that matter."""
    return {
        # The folders of a machine are nobody else's.
        "command": [re.sub(r"(^|=)[^=]*/", r"\1", word) for word in sys.argv],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu_facts(),
        "gpus": _gpus(),
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(
                ("KERAS_", "TF_", "XLA_", "JAX_", "OMP_", "MKL_", "DNNL_", "ONEDNN_")
            )
            or name in ("LD_PRELOAD", "MALLOC_CONF", "CUDA_VISIBLE_DEVICES")
        },
    }


def cpu_facts() -> dict[str, Any]:
    """Model, usable CPUs, and which of the instructions for fast products it has."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = set(fields.get("flags", "").split())
    return {
        "model": fields.get("model name") or platform.processor() or platform.machine(),
        "usable": usable_cpus(),
        "flags": [flag for flag in CPU_FLAGS if flag in flags],
    }


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    return _output(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    )


def _gpus() -> list[str]:
    names = _output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    return names.splitlines() if names else []


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
