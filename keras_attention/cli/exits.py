"""How a command ends: with which code, and with which words."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

FAILURE, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141


@contextlib.contextmanager
def orderly_exit(program: str) -> Iterator[None]:
    """End the process with a message instead of a traceback.

    Exit codes: 2 for bad use or bad input, 1 for a failure (training that diverged, a full disk, no
    memory left), 130 after Ctrl-C, 143 after SIGTERM, 141 if whoever reads the output has closed it.

    Args:
        program: Name of the command, for the message.
    """
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
        _say(program, error)
        raise SystemExit(FAILURE) from error
    except OSError as error:
        _say(program, error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
        raise SystemExit(FAILURE if full else BAD_INPUT) from error
    except (ValueError, TypeError, ImportError) as error:
        _say(program, error)
        raise SystemExit(BAD_INPUT) from error


def _say(program: str, error: BaseException) -> None:
    text = str(error) or type(error).__name__
    print(f"{program}: {text}", file=sys.stderr)
