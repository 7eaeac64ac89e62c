"""A subject of a comparison: a program that prepares itself, shows its outputs and runs when told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Subject:
    """One program under measurement, in a process of its own; subclass it.

    The constructor takes the options of the `Spec` as keyword arguments and imports the libraries (the
    memory after it is the libraries' own), nothing else. Arguments and results of all methods are what
    JSON can hold.
    """

    def prepare(self) -> dict[str, Any]:
        """Build and compile everything.

        Returns:
            Facts: `"work"`, a dict of what one sample amounts to (`{"tokens": 4096, "flop": 7.8e11}`), and
            whatever a reader of the results should know: versions, numbers of parameters, settings.
        """
        raise NotImplementedError

    def check(self) -> dict[str, Any]:
        """Return the output by name, to compare it with the other subjects'; empty if there is none."""
        return {}

    def run(self, count: int) -> list[float]:
        """Do the work `count` times.

        Returns:
            The seconds of each; the work must be finished, not only queued, when the clock is read.
        """
        raise NotImplementedError

    def memory(self) -> dict[str, int]:
        """Bytes that the process's own memory does not show, such as `device_peak_bytes` of a GPU."""
        return {}


def timed(work: Callable[[], Any], count: int) -> list[float]:
    """Return the seconds of each of `count` calls."""
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds
