"""Peak memory of this process, over a stretch of its life."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """The most resident memory since the last `reset`, and ever; in bytes.

    On Linux the kernel's high-water mark (VmHWM) can be set back. Elsewhere both are the peak of the
    process's whole life.

    Example:

    >>> memory = PeakMemory()
    >>> memory.reset()
    >>> figures = memory.read()
    >>> 0 < figures["peak_bytes"] <= figures["absolute_peak_bytes"]
    True
    """

    def __init__(self) -> None:
        self._absolute = 0

    def reset(self) -> None:
        """Begin a new stretch."""
        self._absolute = max(self._absolute, self._peak())
        if _CLEAR.exists():
            try:
                _CLEAR.write_text("5")
            except (
                OSError
            ):  # Not allowed in some containers: the peak is that of the whole life then.
                pass

    def read(self) -> dict[str, int]:
        """`peak_bytes` since the last `reset`, `absolute_peak_bytes`, `resident_bytes` now."""
        peak = self._peak()
        self._absolute = max(self._absolute, peak)
        return {
            "peak_bytes": peak,
            "absolute_peak_bytes": self._absolute,
            "resident_bytes": self.resident(),
        }

    def resident(self) -> int:
        """Resident bytes now; the peak where the system does not tell."""
        return _status("VmRSS") or self._peak()

    def _peak(self) -> int:
        unit = 1 if sys.platform == "darwin" else 1024
        return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    if not _STATUS.exists():
        return 0
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
