"""Progress of long work: one line that is updated on a terminal, or a line now and then in a file or pipe."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

Part = TypeVar("Part")
# Short work stays silent.
SILENT_SECONDS = 3.0
TERMINAL_SECONDS = 0.5
# In a file or a pipe: often enough to see that something moves, then less often.
PIPE_SECONDS, PIPE_SECONDS_LATER, LATER = 10.0, 30.0, 120.0
# The thread that updates the line ends when nothing has been shown for this long.
IDLE_SECONDS = 5.0

LEFT = ", {remaining} left"
# From the longest to the shortest: the first that fits is shown.
COUNT = "{n_fmt} of {total_fmt} {unit}"
TERMINAL_FORMAT = f"{{desc}}: {{percentage:3.0f}}%|{{bar:20}}| {COUNT}{LEFT}{{postfix}}"
PIPE_FORMAT = f"{{desc}}: {COUNT}, {{percentage:.0f}}%{LEFT}{{postfix}}"
NARROW_FORMAT = f"{{desc}}: {COUNT}, {{percentage:.0f}}%{LEFT}"
UNCOUNTED_FORMAT = "{desc} ... {elapsed}{postfix}"

_active: list[Progress] = []  # from the outermost, which is shown, to the innermost
_ticker: threading.Thread | None = None
_ticker_lock = threading.Lock()


class Progress:
    """Shows "translating: 42%|████    | 420 of 1000 sentences, 00:42 left" on the standard error.

    Nothing is written in the first 3 seconds. The line is updated even while nothing is counted. Work
    inside other work, such as translating while a model trains, is shown as a note in the outer line.

    Args:
        total: Number of units of work; None if unknown.
        action: What is being done, such as "translating".
        unit: What is counted, such as "sentences".
        enabled: Whether to write anything. Defaults to True.
        initial: Number of units that were done before. Defaults to 0.
        stream: Stream to write to. Defaults to standard error.
    """

    def __init__(
        self,
        total: float | None,
        action: str,
        unit: str = "",
        enabled: bool = True,
        initial: float = 0,
        stream: TextIO | None = None,
    ):
        self._total = total
        self._action = action
        self._unit = unit
        self.is_enabled = enabled
        self._done = initial
        self._stream = stream
        self._values = ""
        self._note = ""
        self._bar: Any = None
        self._lines: _Lines | None = None  # unless it is a terminal
        self._outer: Progress | None = None
        self._ticked = 0.0

    def __enter__(self) -> Progress:
        if not self.is_enabled:
            return self
        if _active:
            self._outer = _active[-1]
        else:
            self._bar = self._new_bar()
        _active.append(self)
        _start_ticker()
        return self

    def __exit__(self, *error: object) -> None:
        if not self.is_enabled:
            return
        _active.remove(self)
        if self._bar is not None:
            self._bar.close()
        elif self._outer is not None:
            self._outer.note("")

    def add(self, number: float) -> None:
        """Count `number` units as done."""
        self._done += number
        if self._bar is not None:
            self._bar.update(number)
        elif self._outer is not None and self._total is not None:
            self._outer.note(f"{self._action} {self._done:,} of {self._total:,} {self._unit}")

    def reach(self, done: float) -> None:
        """Set the total number of units done; more than all, such as a second too many, counts as all."""
        self.add((done if self._total is None else min(done, self._total)) - self._done)

    def values(self, text: str) -> None:
        """Show numbers after the count, such as "loss 2.31"."""
        self._values = text
        self._show()

    def left(self, seconds: float | None) -> None:
        """Set how many seconds are left, in place of an estimate; None: it is not known yet.

        They count down until they are set again; once they are over, nothing is said of them.
        """
        if self._bar is not None:
            self._bar.ends = (None if seconds is None else time.time() + seconds,)

    def note(self, text: str) -> None:
        """Show what is going on, such as "compiling"; an empty text removes the note."""
        self._note = text
        if self._outer is not None:
            self._outer.note(text)
        self._show()

    @contextlib.contextmanager
    def during(self, note: str) -> Iterator[Progress]:
        """Show a note within this context."""
        before = self._note
        self.note(note)
        try:
            yield self
        finally:
            self.note(before)

    def _show(self) -> None:
        if self._bar is not None:
            parts = [text for text in (self._values, self._note) if text]
            # A terminal may lack room for both; during a note, the numbers do not change anyway.
            shown = "; ".join(parts if self._lines is not None else parts[-1:])
            self._bar.set_postfix_str(shown, refresh=False)

    def _new_bar(self) -> Any:
        stream = self._stream or sys.stderr
        if stream is None:  # a daemon's, or a program without a console
            return None
        on_terminal = stream.isatty()
        has_size = on_terminal and _has_size(stream)
        if self._total is None:
            shown = UNCOUNTED_FORMAT
        else:
            shown = TERMINAL_FORMAT if on_terminal else PIPE_FORMAT
        self._lines = None if on_terminal else _Lines(stream)
        bar = _Bar(
            total=self._total,
            initial=self._done,
            desc=self._action,
            unit=self._unit,
            bar_format=shown,
            file=self._lines or stream,
            mininterval=TERMINAL_SECONDS if on_terminal else PIPE_SECONDS,
            miniters=1,
            delay=SILENT_SECONDS,
            smoothing=0,  # The mean speed: the ticker's writes would distort a moving average.
            leave=self._total is not None,
            dynamic_ncols=has_size,
            # A terminal that does not tell its size has that of the environment, or an ordinary one.
            ncols=shutil.get_terminal_size().columns if on_terminal and not has_size else None,
            nrows=24 if on_terminal and not has_size else None,
        )
        return None if bar.disable else bar  # TQDM_DISABLE=1 makes one that knows nothing.

    def _tick(self) -> None:
        bar = self._bar
        now = time.time()
        if self._note:
            bar.beside += now - max(self._ticked, bar.start_t)
        self._ticked = now
        elapsed = now - bar.start_t
        if elapsed < SILENT_SECONDS:
            return
        if self._lines is not None:
            bar.mininterval = PIPE_SECONDS if elapsed < LATER else PIPE_SECONDS_LATER
            if time.monotonic() - self._lines.written < bar.mininterval:
                return
        bar.refresh()


def with_progress(
    parts: Iterable[Part], *shown: Any, sizes: Iterable[float] | None = None
) -> Iterator[Part]:
    """Yield the parts of a work; when the next one is asked for, the last is counted, or its size.

    `shown` are the arguments of its `Progress`.
    """
    with Progress(*shown) as progress:
        for part, size in zip(parts, sizes or itertools.repeat(1), strict=False):
            yield part
            progress.add(size)


class _Bar(tqdm):
    monitor_interval = 0  # tqdm's own monitor thread is not needed.
    beside = 0.0  # seconds during notes, which do not count for the speed
    ends: tuple[float | None] | None = None  # when, by what `Progress.left` said

    def refresh(self, nolock: bool = False, lock_args: Any = None) -> None:
        """Draw the line, but in the silent seconds, in which `tqdm.write` would draw it, too."""
        # Without a delay tqdm draws the line before it notes when it began.
        if self.delay <= 0 or time.time() >= self.start_t + self.delay:
            # tqdm would keep its lock if the stream is broken, and all other threads would wait for ever.
            with contextlib.nullcontext() if nolock else self._lock:
                super().refresh(nolock=True)
            self.last_print_t = time.time()  # The line was shown: closing must end it.

    @property
    def format_dict(self) -> dict[str, Any]:
        known = super().format_dict
        if self.total is not None:
            known["elapsed"] = max(known["elapsed"] - self.beside, 1e-6)
        known["bar_format"] = self._with_left(known["bar_format"])
        return known

    def _with_left(self, shown: str) -> str:
        """Return the form of a line with the time that is left, if it was set."""
        if self.ends is None:
            return shown
        (end,) = self.ends
        seconds = 0 if end is None else round(end - time.time())
        left = LEFT.format(remaining=self.format_interval(seconds)) if seconds > 0 else ""
        return shown.replace(LEFT, left)

    def __str__(self) -> str:
        """Return the longest line that fits: one that is cut off would show numbers without units."""
        known = self.format_dict
        columns = known["ncols"]
        if self.bar_format != TERMINAL_FORMAT or not columns:
            return super().__str__()
        for shown in (TERMINAL_FORMAT, PIPE_FORMAT, NARROW_FORMAT):
            shown = self._with_left(shown)
            text = self.format_meter(**{**known, "ncols": None, "bar_format": shown})
            if len(text) < columns:
                return text
        return self.format_meter(**{**known, "bar_format": shown})


def _has_size(terminal: TextIO) -> bool:
    """Whether a terminal tells its own size, which is what tqdm asks for."""
    try:
        columns, rows = os.get_terminal_size(terminal.fileno())
    except OSError:
        return False
    return columns > 0 and rows > 0


class _Lines:
    """Wraps a file or a pipe for tqdm: writes whole lines, without repeats, instead of carriage returns."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._last = ""
        self.written = -PIPE_SECONDS

    def write(self, text: str) -> None:
        line = text.strip()
        if line and line != self._last:
            self._last, self.written = line, time.monotonic()
            self._stream.write(f"{line}\n")

    def flush(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def activity(text: str) -> Iterator[Progress]:
    """Show what is going on if it takes long: in the current progress line, or in a new one."""
    if _active:
        with _active[-1].during(text) as progress:
            yield progress
    else:
        with Progress(None, text) as progress:
            yield progress


def say(text: str, stream: TextIO | None = None) -> None:
    """Write a permanent line above the progress line, by default on the standard error."""
    stream = stream or sys.stderr
    if stream is None:  # tqdm would write to the standard output, among the results
        return
    try:
        tqdm.write(text, file=stream)
        stream.flush()
    except OSError as error:
        if error.errno != errno.EIO:  # The terminal was closed: the work goes on, to be saved.
            raise


def show(text: str) -> None:
    """Print a result on the standard output, with escapes for what its encoding lacks: no result is lost."""
    try:
        print(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        print(text.encode(encoding, "backslashreplace").decode(encoding))


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discards all output within this context, as of the processes beside the one that prints."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def _start_ticker() -> None:
    global _ticker
    with _ticker_lock:
        if _ticker is None or not _ticker.is_alive():
            _ticker = threading.Thread(target=_tick_on, name="progress", daemon=True)
            _ticker.start()


def _tick_on() -> None:
    """Update the current progress line, until there has been none for a while."""
    global _ticker
    idle_since = time.monotonic()
    while True:
        time.sleep(TERMINAL_SECONDS)
        if _active:
            idle_since = time.monotonic()
        # With several threads, the outermost work may end first, and the rest has no line of its own.
        shown = next((work for work in tuple(_active) if work._bar is not None), None)
        if shown is not None:
            with contextlib.suppress(ValueError):  # the stream was closed meanwhile
                shown._tick()
        with _ticker_lock:
            if not _active and time.monotonic() - idle_since > IDLE_SECONDS:
                _ticker = None
                return
