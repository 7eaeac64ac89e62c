"""The child's side of `process.Worker`: one subject, told what to do through a pipe.

Started as `python -m harness.worker CPUS`, the number of CPUs to use, 0 for all. Each line of stdin is a
command as a JSON object, each line of stdout its answer. What the libraries print goes to stderr, the log.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import resource
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def main() -> None:
    """Serve until the parent is gone."""
    # Copies of the descriptors, which no grandchild inherits; whoever prints writes to the log.
    lines, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    if (cpus := int(sys.argv[1])) and hasattr(os, "sched_setaffinity"):
        # Before any library counts them.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines, commands), daemon=True).start()
    subject = None
    while True:
        message = commands.get()
        try:
            if message["command"] == "start":
                module, name = message["target"].split(":")
                subject = getattr(importlib.import_module(module), name)(**message["options"])
                answer: dict[str, Any] = {"value": {"resident_bytes": _bytes("VmRSS")}}
            else:
                answer = {"value": _done(subject, **message)}
        except BaseException as error:
            traceback.print_exc()
            sys.stderr.flush()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _listen(lines: TextIO, commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in lines:
        commands.put(json.loads(line))
    os._exit(1)  # The parent is gone: so is this process, even amid its work.


def _done(subject: Any, command: str, **arguments: Any) -> Any:
    """Return what the subject's method returns, and of `run` also the memory that it took."""
    if command != "run":
        return getattr(subject, command)(**arguments)
    try:
        CLEAR.write_text(
            "5"
        )  # On Linux the peak begins anew; where it cannot, it is that of the whole life.
    except OSError:
        pass
    seconds = subject.run(**arguments)
    memory = {"peak_bytes": _bytes("VmHWM"), "resident_bytes": _bytes("VmRSS")}
    return {"seconds": seconds, "memory": {**memory, **subject.memory()}}


def _bytes(name: str) -> int:
    """Return a size that Linux tells; elsewhere the peak of the whole life."""
    if not STATUS.exists():
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    found = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:")]
    return int(found[0].split()[1]) * 1024


if __name__ == "__main__":
    main()
