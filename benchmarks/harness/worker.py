"""The child's side of `process.Worker`: one subject, told what to do through a pipe.

Started as `python -m harness.worker COMMANDS ANSWERS CPUS`: two file descriptors and the number of
CPUs to use, 0 for all. Each line is a JSON object. What the libraries print goes to the log, not
through the pipes.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import traceback
from typing import Any

from harness.memory import PeakMemory


def main() -> None:
    """Serve until told to quit, or until the parent is gone."""
    descriptors = [int(argument) for argument in sys.argv[1:3]]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # A grandchild must not keep the pipes open.
    if (cpus := int(sys.argv[3])) and hasattr(os, "sched_setaffinity"):
        # Before any library counts them.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])
    commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(descriptors[0], commands), daemon=True).start()
    server = _Server()
    with os.fdopen(descriptors[1], "w", encoding="utf-8") as answers:
        while (message := commands.get()) != {"command": "quit"}:
            answers.write(json.dumps(_answer(server, message)) + "\n")
            answers.flush()
    # Libraries' threads, exit handlers and destructors have hung often enough.
    os._exit(0)


def _listen(descriptor: int, commands: queue.SimpleQueue[dict[str, Any]]) -> None:
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        for line in lines:
            commands.put(json.loads(line))
    os._exit(1)  # The parent is gone: so is this process, even amid its work.


def _answer(server: _Server, message: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": server.do(message.pop("command"), message)}
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        return {"error": f"{type(error).__name__}: {error}"}


class _Server:
    def __init__(self) -> None:
        self._subject: Any = None
        self._memory = PeakMemory()

    def do(self, command: str, arguments: dict[str, Any]) -> Any:
        if command == "start":
            module, name = arguments["target"].split(":")
            self._subject = getattr(importlib.import_module(module), name)(**arguments["options"])
            return {"resident_bytes": self._memory.resident()}
        if command == "run":
            self._memory.reset()
            seconds = self._subject.run(**arguments)
            memory = {**self._memory.read(), **self._subject.memory()}
            return {"seconds": seconds, "memory": memory}
        if command not in self._subject.commands:
            raise ValueError(
                f"{type(self._subject).__name__} has the commands {', '.join(self._subject.commands)}. "
                f"Received: {command!r}"
            )
        return getattr(self._subject, command)(**arguments)


if __name__ == "__main__":
    main()
