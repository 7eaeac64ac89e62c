"""A command as a process: its standard streams, its exit code and its last message."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

from keras_attention.data.text_files import lines_of
from keras_attention.utils.agreed import is_told_here

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


FAILURE, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141


@contextlib.contextmanager
def orderly_exit(program: str) -> Iterator[None]:
    """Open the standard streams, and end the process with a message instead of a traceback.

    Exit codes: 2 for bad use or bad input, 1 for a failure (training that diverged, a full disk, no
    memory left), 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, 141 if whoever reads the output has
    closed it.
    """
    open_standard_streams()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes the standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(CLOSED_PIPE) from None
    except KeyboardInterrupt as stop:
        raise SystemExit(getattr(stop, "exit_code", INTERRUPTED)) from None
    except (MemoryError, ArithmeticError, RuntimeError) as error:
        _end(program, error, FAILURE)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        _end(program, error, FAILURE if full else BAD_INPUT)
    except (ValueError, TypeError, ImportError) as error:
        _end(program, error, BAD_INPUT)


@contextlib.contextmanager
def naming_the_folder(folder: Path, is_given: bool) -> Iterator[None]:
    """At the end of a command, stopped or not, name the folder that the next start needs to go on there.

    Nothing is said if the user has named it.
    """
    try:
        yield
    finally:
        if not is_given and folder.exists():
            print(
                "Without --output-dir, the same command starts anew. To go on with this run, add "
                f"--output-dir {shlex.quote(str(folder))}",
                file=sys.stderr,
            )


def _end(program: str, error: Exception, code: int) -> NoReturn:
    """Say what happened, unless another process does, and end this one."""
    # If all processes that train together fail, only one prints the error; see `failing_together`.
    if is_told_here(error):
        print(f"{program}: {str(error) or type(error).__name__}", file=sys.stderr)
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        from keras_attention.training.processes import LostProcess

        # JAX would wait for minutes for processes that wait for this one, unless it knows one is lost.
        if not isinstance(error, LostProcess):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    raise SystemExit(code) from error
