"""Jobs that stand for a translation, and a process that does one on Ray, for tests that kill or measure it.

    python -m tests.recipes.bulk_jobs JSON

It prints "written" for each chunk that is kept, and at last "peak" and its peak memory in MB.
"""

import dataclasses
import json
import os
import re
import sys
import time
from pathlib import Path

from keras_attention.recipes import bulk
from keras_attention.recipes.bulk_folder import BulkFolder, TextFile
from keras_attention.recipes.bulk_work import run_chunks


class Shout:
    """Numbers lines and writes them in capitals; keeps in a file which lines it was given.

    Args:
        log: The file.
        fail_at: A line at which it raises an error.
        die_at: A line at which its process dies.
        seconds: How long it takes for a chunk.
    """

    def __init__(self, log, fail_at=None, seconds=0.0, die_at=None):
        self.log, self.fail_at, self.seconds = log, fail_at, seconds
        self.die_at = die_at

    def __call__(self):
        def work(lines, chunk):
            if self.fail_at in lines:
                raise RuntimeError("out of order")
            note(self.log, lines)
            if self.die_at in lines:
                os._exit(9)
            time.sleep(self.seconds)
            return "".join(f"{chunk.first + i} {line.upper()}\n" for i, line in enumerate(lines))

        return work

    def seen(self):
        return noted(self.log)


class Echo:
    """Gives lines back."""

    def __call__(self):
        return lambda lines, chunk: "".join(f"{line}\n" for line in lines)


@dataclasses.dataclass(frozen=True)
class NotedTranslation(bulk.TranslateChunk):
    """A real translation that keeps in a file which lines it was given."""

    log: Path = Path()

    def __call__(self):
        translate = super().__call__()

        def work(lines, chunk):
            note(self.log, lines)
            return translate(lines, chunk)

        return work


def note(log, lines):
    """One write, so that lines of several processes do not mix."""
    content = "".join(f"{line}\n" for line in lines).encode()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, content)
    os.close(file)


def noted(log):
    return log.read_text("utf-8").split("\n")[:-1] if log.exists() else []


def main(address, inputs, out, chunk_lines, log, run=None, echo=False, seconds=0.0):
    write = BulkFolder.write

    def write_and_say(folder, chunk, result):
        write(folder, chunk, result)
        print("written", flush=True)

    BulkFolder.write = write_and_say
    if run is None:
        job = Echo() if echo else Shout(Path(log), seconds=seconds)
        folder = BulkFolder(out, [TextFile(file) for file in inputs], {"model": "m"}, chunk_lines)
        run_chunks(folder, job, ray=address, show_progress=False)
    else:
        bulk.TranslateChunk = lambda *given: NotedTranslation(*given, log=Path(log))
        given = {"chunk_lines": chunk_lines, "show_progress": False}
        bulk.translate_corpus(run, inputs, out, ray=address, **given)
    # Not `ru_maxrss`, which counts what the parent had before this program began.
    status = Path("/proc/self/status").read_text()
    print("peak", int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024, flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
