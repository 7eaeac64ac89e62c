"""How a command ends: its exit code and its message."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from keras_attention.cli.streams import open_standard_streams
from keras_attention.utils.agreed import is_told_here

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
