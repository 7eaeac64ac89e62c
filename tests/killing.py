"""Kills a process at each of its file operations, which are found by tracing it."""

import os
import signal
import sys
import traceback

CAN_FORK = hasattr(os, "fork")


def killed_at(operation, folder, work):
    """Does some work in a child that is killed before its file operation number `operation`.

    Counted is what Python's audit events say of paths below `folder`: opening, renaming, deleting, ...

    Returns:
        Whether it was killed; False if the work has no so many operations.
    """
    child = os.fork()
    if child == 0:
        _work_until(operation, str(folder), work)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "The work failed: see its traceback."
    return False


def _work_until(operation, folder, work):
    count = 0

    def watch(event, arguments):
        nonlocal count
        paths = [path for path in arguments if isinstance(path, str | bytes | os.PathLike)]
        if any(os.fsdecode(path).startswith(folder) for path in paths):
            count += 1
            if count == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(watch)  # It cannot be taken away again, but this process soon ends.
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
