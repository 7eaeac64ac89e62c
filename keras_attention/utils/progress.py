"""A progress line for long work."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

# Short work stays silent; a log file gets a line now and then, a terminal one line that moves.
SILENT_SECONDS = 3.0
TERMINAL_SECONDS = 0.5
LOG_SECONDS = 30.0


class Progress:
    """Writes "translating: 120 of 1000 sentences, 42 s left" to the standard error.

    Nothing is written in the first 3 seconds. Used in a `with` statement, so that the line is ended
    also when the work is interrupted.

    Args:
        total: Number of units of work.
        action: What is done, "translating".
        unit: What is counted, "sentences".
        enabled: False writes nothing.

    Example:

    >>> with Progress(2, "counting", "sheep") as progress:
    ...     progress.add(1)
    ...     progress.add(1)
    """

    def __init__(self, total: int, action: str, unit: str, enabled: bool = True):
        self._total = total
        self._action = action
        self._unit = unit
        self._enabled = enabled
        self._done = 0
        self._start = time.monotonic()
        self._next_line = self._start + SILENT_SECONDS
        self._written = False

    def __enter__(self) -> Progress:
        return self

    def add(self, number: int) -> None:
        """Counts `number` units as done."""
        self._done += number
        now = time.monotonic()
        if not self._enabled or (now < self._next_line and self._done < self._total):
            return
        if self._done == self._total and not self._written:
            return
        terminal = sys.stderr.isatty()
        left = (now - self._start) / self._done * (self._total - self._done)
        line = f"{self._action}: {self._done} of {self._total} {self._unit}, {left:.0f} s left"
        sys.stderr.write(f"\r{line}   " if terminal else f"{line}\n")
        sys.stderr.flush()
        self._written = True
        self._next_line = now + (TERMINAL_SECONDS if terminal else LOG_SECONDS)

    @contextlib.contextmanager
    def during(self, note: str) -> Iterator[None]:
        """Says what is being done, "compiling 16 x 64", if it lasts beyond the silent seconds."""

        def write() -> None:
            terminal = sys.stderr.isatty()
            line = f"{self._action}: {note} ..."
            sys.stderr.write(f"\r{line}   " if terminal else f"{line}\n")
            sys.stderr.flush()
            self._written = True

        delay = max(0.0, self._start + SILENT_SECONDS - time.monotonic())
        timer = threading.Timer(delay, write)
        timer.daemon = True
        if self._enabled:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def __exit__(self, *error) -> None:
        if self._written and sys.stderr.isatty():
            sys.stderr.write("\n")
