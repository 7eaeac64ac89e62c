"""The standard streams of a command: always there, in UTF-8, and read as the text arrives."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any

from keras_attention.data.text_files import lines_of

# Lines that are sorted by length and computed together.
CHUNK_LINES = 1000
READ_BYTES = 1 << 16
# What a stream does with what cannot be encoded: names of files may hold any bytes.
STREAMS = (
    ("stdin", "r", "strict"),
    ("stdout", "w", "surrogateescape"),
    ("stderr", "w", "backslashreplace"),
)


def open_standard_streams() -> None:
    """Open the standard streams that are closed, on the null device, and let all of them use UTF-8.

    A daemon may close them. The next files that are opened would take their numbers, and what libraries
    write to number 2 would go into one of them.
    """
    for number, (name, mode, errors) in enumerate(STREAMS):
        was_closed = not _is_open(number)
        if was_closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            # As a standard stream is, by programs started from here.
            os.set_inheritable(number, True)
        stream = getattr(sys, name)
        if stream is None or stream.closed:
            # If its number is in use, another file has taken it.
            place: Any = number if was_closed else os.devnull
            stream = open(place, mode, encoding="utf-8", errors=errors, closefd=not was_closed)
            setattr(sys, name, stream)
        elif isinstance(stream, io.TextIOWrapper) and name != "stdin":
            stream.reconfigure(encoding="utf-8", errors=errors)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def typed_text(argument: str) -> str:
    """Return a text of the command line, which is UTF-8 where the locale says something else, too.

    >>> typed_text("für"), typed_text("f\\udcc3\\udcbcr")
    ('für', 'für')
    """
    with contextlib.suppress(UnicodeEncodeError):
        argument.encode("utf-8")
        return argument
    return argument.encode("utf-8", "surrogateescape").decode("utf-8")


def chunks_as_they_come(
    stream: IO[bytes], name: str, work: Callable[[int, list[str]], Any]
) -> None:
    """Read lines, and pass on as many at a time as are there, so that whoever waits for an answer gets it.

    `work` is called with the number of lines before, and the lines, `CHUNK_LINES` at most. The stream is open
    at its start; its name is for error messages.
    """
    chunk: list[str] = []
    done = 0

    def pass_on() -> None:
        nonlocal chunk, done
        lines, chunk = chunk, []
        if lines:
            work(done, lines)
            done += len(lines)

    source: Any = io.BufferedReader(_Arriving(stream, pass_on), READ_BYTES)
    for line in lines_of(source, name):
        chunk.append(line)
        if len(chunk) == CHUNK_LINES:
            pass_on()
    pass_on()


class _Arriving(io.RawIOBase):
    """The bytes of a stream; calls a function before it would have to wait for more."""

    def __init__(self, stream: IO[bytes], before_waiting: Callable[[], None]):
        self._stream: Any = stream
        self._before_waiting = before_waiting

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._has_more():
            self._before_waiting()
        return self._stream.readinto1(buffer)

    def _has_more(self) -> bool:
        """Whether reading returns at once; also where that cannot be told."""
        streams: Iterable[Any] = [self._stream]
        try:
            return bool(select.select(streams, [], [], 0)[0])
        except (OSError, ValueError, TypeError):  # no file of the system's, or no pipe on Windows
            return os.name != "nt"
