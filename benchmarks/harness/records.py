"""Records of benchmarks: where and when a run took place, and its figures; see `results/README.md`."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"
PACKAGES = (
    "keras-attention-transformer", "keras", "tensorflow", "jax", "jaxlib", "torch", "numpy", "transformers",
    "keras-hub", "ctranslate2",
)  # fmt: skip
# What decides which products a CPU can do fast.
CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
# The best instruction set for products that a processor has names it in the tables; the best first.
PROCESSORS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
VARIABLES = (
    r"(KERAS|TF|XLA|JAX|OMP|MKL|DNNL|ONEDNN)_|(LD_PRELOAD|MALLOC_CONF|CUDA_VISIBLE_DEVICES)$"
)


def add_record_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option `--record`: the folder that gets a record of all figures, or None."""
    parser.add_argument(
        "--record",
        type=Path,
        nargs="?",
        const=RESULTS,
        metavar="FOLDER",
        help="write a record of all figures there; by default to benchmarks/results/, for the tables",
    )


def write_record(
    folder: Path | None,
    facts: Mapping[str, Any],
    benchmark: str,
    case: Mapping[str, Any],
    **figures: Any,
) -> None:
    """Write a record to a folder, if there is one.

    Args:
        folder: Of the option `--record`.
        facts: From `run_facts`, of the time before the benchmark.
        benchmark: Its name.
        case: What was measured.
        **figures: What was found, such as `comparison(outcomes)`.
    """
    if folder is not None:
        record = {**facts, "benchmark": benchmark, "case": case, "source": "measured", **figures}
        path = record_path(benchmark, case, facts, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(json.dumps(finite_or_none(record), indent=2) + "\n", encoding="utf-8")
        os.replace(beside, path)


def record_path(
    benchmark: str, case: Mapping[str, Any], facts: Mapping[str, Any], folder: Path = RESULTS
) -> Path:
    """Where the record of a run goes: a name of its day, its case and its processor.

    Example:

    >>> facts = {"started": "2026-11-23T08:00:00+00:00", "cpu": {"flags": ["avx2"]}}
    >>> record_path("decode", {"model": "base", "batch_size": 32}, facts).name
    '2026-11-23T080000-decode-base-32-avx2.json'
    """
    time = facts["started"].partition("+")[0].replace(":", "")
    words = [benchmark, *map(str, case.values()), processor({**facts, "case": case})]
    name = re.sub(r"[^a-z0-9_]+", "-", "-".join(words).lower()).strip("-")
    return folder / f"{time}-{name}.json"


def finite_or_none(value: Any) -> Any:
    """Return the same data with what JSON cannot hold, infinities and NaN, as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite_or_none(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_none(part) for part in value]
    return value


def processor(record: Mapping[str, Any]) -> str:
    """Return the GPU's name, or the best instruction set of the CPU, or the one that it was held to.

    Example:

    >>> processor({"cpu": {"flags": ["avx512f", "avx512_bf16", "amx_bf16"]}})
    'AMX'
    """
    if record.get("gpus"):
        return record["gpus"][0].partition(",")[0]
    if held := record.get("case", {}).get("isa"):
        return f"{PROCESSORS[held]} (emulated)"
    flags = record["cpu"]["flags"]
    return next((name for flag, name in PROCESSORS.items() if flag in flags), "other")


def run_facts() -> dict[str, Any]:
    """Command, date, commit, machine, versions of the packages and the variables that matter."""
    here = str(Path(__file__).parent)
    gpus = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return {
        # The folders of a machine are nobody else's.
        "command": [re.sub(r"(^|=)[^=]*/", r"\1", word) for word in sys.argv],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _output("git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu_facts(),
        "gpus": gpus.splitlines() if gpus else [],
        "versions": {name: version for name in PACKAGES if (version := _version(name))},
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if re.match(VARIABLES, name)
        },
    }


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_facts() -> dict[str, Any]:
    """Model, usable CPUs, and which of the instructions for fast products it has."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.+)$", text, re.MULTILINE)
    return {
        "model": model[1] if model else platform.processor() or platform.machine(),
        "usable": usable_cpus(),
        "flags": [flag for flag in CPU_FLAGS if flags and flag in flags[1].split()],
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
