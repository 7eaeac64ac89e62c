"""A log of numbers that programs read: one JSON object a line."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What depends on the machine and not on the run: all that may differ after a resume.
WALL_CLOCK_FIELDS = (
    "time",
    "seconds",
    "batches_per_second",
    "tokens_per_second",
    "flops_per_second",
    "mfu",
)


class MetricsLog:
    """Appends JSON objects to a file, one a line, each handed to the operating system at once.

    Numbers that are infinite or NaN, which JSON cannot hold, are written as `null`.

    Args:
        path: The file, such as `metrics.jsonl` in a run's folder; goes on with one that is there.

    Example:

    >>> import tempfile
    >>> log = MetricsLog(Path(tempfile.mkdtemp()) / "metrics.jsonl")
    >>> log.write({"update": 100, "loss": 4.5})
    >>> log.write({"update": 200, "loss": 4.25})
    >>> log.keep_until(100)
    >>> [entry["loss"] for entry in log.read()]
    [4.5]
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def write(self, values: Mapping[str, Any]) -> None:
        """Append an entry; the time is added."""
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = {**{name: _writable(value) for name, value in values.items()}, "time": time}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All entries; a last line that a crash cut short is left out."""
        if not self.path.exists():
            return []
        lines = self.path.read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def cut(self, size: int) -> None:
        """Forget what came after the file had this size: a run goes on from there."""
        if self.size > size:
            os.truncate(self.path, size)

    def keep_until(self, update: int) -> None:
        """Forget the first entry of a later update, and all after it."""
        size = 0
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n") or json.loads(line).get("update", 0) > update:
                break
            size += len(line)
        self.cut(size)


def _writable(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
