"""A machine-readable log of numbers: one JSON object per line."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from keras_attention.utils.arguments import checked
from keras_attention.utils.files import DamagedFile, check_still_there, naming_errors
from keras_attention.utils.signed_json import parse_json

# Fields that depend on the machine's clock: only these may differ after a resume.
WALL_CLOCK_FIELDS = (
    "time",
    "seconds",
    "batches_per_second",
    "tokens_per_second",
    "flops_per_second",
    "mfu",
)


class MetricsLog:
    """Appends JSON objects to a file, one per line, each passed to the operating system at once.

    Infinite and NaN values, which JSON cannot hold, are written as `null`.

    Args:
        path: The file, such as `metrics.jsonl` in a run's folder. An existing file is continued.

    Example:

    >>> import tempfile
    >>> from pathlib import Path
    >>> log = MetricsLog(Path(tempfile.mkdtemp()) / "metrics.jsonl")
    >>> log.write({"update": 100, "loss": 4.5})
    >>> log.write({"update": 200, "loss": 4.25})
    >>> log.keep_until(100)
    >>> [entry["loss"] for entry in log.read()]
    [4.5]
    """

    @checked
    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def write(self, values: Mapping[str, Any]) -> None:
        """Append an entry, with the time. A last line that a crash cut short is removed."""
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = {**{name: _writable(value) for name, value in values.items()}, "time": time}
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        check_still_there(self.path.parent)
        with naming_errors(self.path), open(self.path, "ab+") as file:
            if not _ends_with_line(file):
                self._check_cut_short()
                file.truncate(sum(len(whole) for whole in self._lines()))
            file.write(line.encode("utf-8"))

    def _check_cut_short(self) -> None:
        """Raise unless the file is a log whose last line a crash cut short: only that may be removed."""
        self.read()
        if not self.path.read_bytes().rpartition(b"\n")[2].startswith(b"{"):
            raise DamagedFile(
                f"'{self.path}' is no log: its last line is not one that was cut short. Nothing was "
                "changed. Choose another file."
            )

    def read(self) -> list[dict[str, Any]]:
        """Return all entries, without a last line that a crash cut short.

        Raises:
            DamagedFile: If a line is not a JSON object.
        """
        return [self._entry(number, line) for number, line in enumerate(self._lines(), start=1)]

    def _lines(self) -> list[bytes]:
        content = self.path.read_bytes() if self.path.exists() else b""
        return [line + b"\n" for line in content.split(b"\n")[:-1]]

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        return parse_json(line, self.path, f"Move the file away, or delete line {number}.")

    def cut(self, size: int) -> None:
        """Cut the file to this size in bytes, if it is longer; a resumed run continues from there."""
        if self.size > size:
            os.truncate(self.path, size)

    def keep_until(self, update: int) -> None:
        """Remove the first entry of an update later than this one, and all entries after it."""
        size = 0
        for number, line in enumerate(self._lines(), start=1):
            if self._entry(number, line).get("update", 0) > update:
                break
            size += len(line)
        self.cut(size)


def _ends_with_line(file: BinaryIO) -> bool:
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _writable(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
