"""The parent's side: a subject in its own process, with a time limit on everything it does."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent.parent
# The package itself, too: it need not be installed.
IMPORTABLE = (BENCHMARKS, BENCHMARKS.parent)
LOG_LINES = 12


class SubjectFailed(RuntimeError):
    """A subject raised, died or took too long; its process is ended. The message says which and why."""


class Worker:
    """A subject that runs in its own process; a context manager that ends it.

    The process has its own session, so that Ctrl-C reaches only the parent, which ends the child and
    the child's children. It ends by itself when the parent is gone.

    Args:
        target: `"module:Class"` of a `Subject`, importable from `benchmarks/`.
        options: Keyword arguments of its constructor; what JSON can hold.
        environment: Variables added to those of this process.
        threads: Number of CPUs that the process may use, and of threads that libraries are told to
            use; None for all.
        time_limit: Seconds until the constructor, which imports the libraries, must be done.

    Raises:
        SubjectFailed: The constructor raised, died or took too long.
    """

    def __init__(
        self,
        target: str,
        options: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        threads: int | None = None,
        time_limit: float = 300.0,
    ) -> None:
        self._log = tempfile.TemporaryFile()
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.worker", str(threads or 0)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env=_environment(environment or {}, threads),
            start_new_session=True,
        )
        try:
            self.started = self.call("start", time_limit, target=target, options=options or {})
        except BaseException:
            self.close()
            raise

    def call(self, command: str, time_limit: float, **arguments: Any) -> Any:
        """Have the subject do something, and wait for it.

        Args:
            command: `"prepare"`, `"check"`, `"run"` or another method of the subject.
            time_limit: Seconds after which it counts as hanging and is ended.
            **arguments: Its arguments.

        Returns:
            What it returned. For `"run"` a dict of `seconds` and `memory`.

        Raises:
            SubjectFailed: It raised, died or took too long.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(
                json.dumps({"command": command, **arguments}).encode() + b"\n"
            )
            answer = json.loads(self._read_line(command, time_limit))
        except OSError:
            raise self._failed(f"the process {self._death()} in {command!r}") from None
        if "error" in answer:
            raise self._failed(f"{command!r} raised {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        """End the process and its children, whatever they are doing; again does nothing."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._log):
            assert file is not None
            file.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read_line(self, command: str, time_limit: float) -> bytes:
        assert self._process.stdout is not None
        ends = time.monotonic() + time_limit
        while b"\n" not in self._unread:
            left = max(0.0, ends - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise self._failed(f"{command!r} took more than {time_limit:g} s, and was ended")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise BrokenPipeError
            self._unread += part
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def _failed(self, reason: str) -> SubjectFailed:
        """Return an error with the last lines that the subject and its libraries printed; end the process."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        self.close()
        return SubjectFailed("\n".join([f"{reason}. Last lines:", *lines[-LOG_LINES:]]))

    def _death(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        return (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )


def _environment(own: Mapping[str, str], threads: int | None) -> dict[str, str]:
    environment = dict(os.environ)
    if threads is not None:
        # What counts CPUs follows the affinity; these are for what does not.
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = str(threads)
    paths = [*map(str, IMPORTABLE), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return {**environment, "PYTHONUNBUFFERED": "1", **own}
