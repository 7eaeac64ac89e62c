"""Records of benchmarks: where a new one goes, how they are read; `results/README.md` lists the fields."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
FIELDS = ("benchmark", "case", "started", "commit", "command", "source", "cpu", "versions")
# The best instruction set for products that a processor has names it in the tables; the best first.
PROCESSORS = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}


def record_path(benchmark: str, case: Mapping[str, Any], facts: Mapping[str, Any]) -> Path:
    """Where the record of a run goes: a name of its day, its case and its processor.

    Args:
        benchmark: Name of the benchmark.
        case: What was measured.
        facts: From `harness.run_facts`.

    Example:

    >>> facts = {"started": "2026-11-23T08:00:00+00:00", "cpu": {"flags": ["avx2"]}}
    >>> record_path("decode", {"model": "base", "batch_size": 32}, facts).name
    '2026-11-23T080000-decode-base-32-avx2.json'
    """
    time = facts["started"].partition("+")[0].replace(":", "")
    words = [benchmark, *map(str, case.values()), processor(facts)]
    name = re.sub(r"[^a-z0-9_]+", "-", "-".join(words).lower()).strip("-")
    return RESULTS / f"{time}-{name}.json"


def write_figures(
    facts: Mapping[str, Any],
    benchmark: str,
    case: Mapping[str, Any],
    figures: Mapping[str, Any],
    paths: Iterable[Path | None],
) -> None:
    """Write a record of named numbers to each of the paths that is not None.

    Args:
        facts: From `harness.run_facts`.
        benchmark: Name of the benchmark.
        case: What was measured.
        figures: Numbers, by name.
        paths: Files, such as that of `record_path`.
    """
    record = {**facts, "benchmark": benchmark, "case": case, "source": "measured"}
    text = json.dumps({**record, "figures": figures}, indent=2) + "\n"
    for path in filter(None, paths):
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)


def read_records(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All records, the newest first; each also knows its `"file"`.

    Raises:
        ValueError: A file is no record; the message names it and the fields that it lacks.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        if missing := [name for name in FIELDS if name not in record]:
            raise ValueError(
                f"{path} lacks {', '.join(missing)}: a record has the fields of {folder / 'README.md'}."
            )
        records.append({**record, "file": path.name})
    return sorted(records, key=lambda record: (record["started"], record["file"]), reverse=True)


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


def subject(record: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the figures of a program, or None if the record has none."""
    found = [part for part in record.get("subjects", ()) if part["spec"]["name"] == name]
    return found[0] if found and found[0]["failure"] is None else None


def times_as_long(record: Mapping[str, Any], slow: str, fast: str) -> dict[str, Any] | None:
    """How many times as long as `fast` the program `slow` took; None if they were not compared.

    Returns:
        `median`, `least` and `most`; the last two are None where single rounds were not kept.

    Example:

    >>> times_as_long({"ratios": {"b": {"a": {"median": 0.5, "least": 0.4, "most": None}}}}, "a", "b")
    {'median': 2.0, 'least': None, 'most': 2.5}
    """
    ratios = record.get("ratios", {})
    if fast in ratios.get(slow, {}):
        return dict(ratios[slow][fast])
    if slow in ratios.get(fast, {}):
        turned = ratios[fast][slow]
        inverse = {name: turned[name] and 1 / turned[name] for name in turned}
        return {**inverse, "least": inverse["most"], "most": inverse["least"]}
    one, other = subject(record, slow), subject(record, fast)
    if one is None or other is None or "sentences" not in one["rates"]:
        return None
    median = other["rates"]["sentences"] / one["rates"]["sentences"]
    return {"median": median, "least": None, "most": None}
