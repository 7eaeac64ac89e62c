"""Jobs that stand for a translation, and a process that does one, for tests that kill or measure it.

    python -m tests.recipes.bulk_jobs JSON

It prints "written" for each chunk that is kept, and at last "peak" and its peak memory in MB.
"""

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path

from keras_attention.recipes import bulk_work
from keras_attention.recipes.bulk_work import BulkWork, TextFile


class Shout:
    """Numbers lines and writes them in capitals; keeps in a file which lines it was given.

    Args:
        log: The file; None to give the lines back, and keep nothing.
        fail_at: A line at which it raises an error.
        die_at: A line at which its process dies.
        deaths: How often it dies there.
        seconds: How long it takes for a chunk.
    """

    def __init__(self, log, fail_at=None, die_at=None, deaths=9, seconds=0.0):
        self.log, self.fail_at, self.die_at, self.deaths = log, fail_at, die_at, deaths
        self.seconds = seconds

    def __call__(self):
        return self.work

    def work(self, lines, chunk):
        if self.log is None:
            return "".join(f"{line}\n" for line in lines)
        if self.fail_at in lines:
            raise RuntimeError("out of order")
        note(self.log, lines)
        if self.die_at in lines and self.seen().count(self.die_at) <= self.deaths:
            os._exit(9)
        time.sleep(self.seconds)
        return "".join(f"{chunk.first + i} {line.upper()}\n" for i, line in enumerate(lines))

    def seen(self):
        return self.log.read_text("utf-8").split("\n")[:-1] if self.log.exists() else []


def note(log, lines):
    """One write, so that lines of several processes do not mix."""
    content = "".join(f"{line}\n" for line in lines).encode()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, content)
    os.close(file)


def main(address, inputs, out, chunk_lines, log=None, seconds=0.0):
    writing = bulk_work.writing

    @contextlib.contextmanager
    def telling(place):
        with writing(place) as file:
            yield file
        if "/parts/" in str(place):
            print("written", flush=True)

    bulk_work.writing = telling
    work = BulkWork(out, [TextFile(file) for file in inputs], {"model": "m"}, chunk_lines)
    work.run(Shout(log and Path(log), seconds=seconds), address, show_progress=False)
    # Not `ru_maxrss`, which counts what the parent had before this program began.
    status = Path("/proc/self/status").read_text()
    print("peak", int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024, flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
