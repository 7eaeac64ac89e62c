"""Kills a process before each of its changes to files, which are found by tracing it."""

import os
import signal
import sys
import traceback

CAN_FORK = hasattr(os, "fork")
# Between two of these, what is on the disk stays the same.
CHANGES = {
    f"os.{name}" for name in "rename remove rmdir mkdir link symlink truncate chmod utime".split()
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def killed_at(change, folder, work):
    """Does some work in a child that is killed before its change number `change` to a folder.

    Counted is what Python's audit events say of paths below the folder: opening to write, renaming, ...

    Returns:
        Whether it was killed; False if the work has no so many changes.
    """
    child = os.fork()
    if child == 0:
        _work_until(change, str(folder), work)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "The work failed: see its traceback."
    return False


def _work_until(change, folder, work):
    count = 0

    def watch(event, arguments):
        nonlocal count
        if event not in CHANGES and not (event == "open" and arguments[2] & WRITING):
            return
        paths = [path for path in arguments if isinstance(path, str | bytes | os.PathLike)]
        if any(os.fsdecode(path).startswith(folder) for path in paths):
            count += 1
            if count == change:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(watch)  # It cannot be taken away again, but this process soon ends.
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
