"""A corpus translated in chunks by so many processes, each on a CPU of its own."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.process import Worker

from peers.decoding.ours import KerasAttention
from peers.peer import Peer

LIMIT = 1800.0


class Share(KerasAttention):
    """One of the processes: it holds the model, and does its share when it is told to.

    Args:
        cpu: The one that it runs on.
        share: `(k, n)`.
        chunk_lines: Lines of a chunk.
        **job: Arguments of `KerasAttention`.
    """

    commands = (*Peer.commands, "translate")

    def __init__(self, cpu: int, share: list[int], chunk_lines: int, **job: Any) -> None:
        os.sched_setaffinity(0, {cpu})  # Before any library counts them.
        self.share, self.chunk_lines = (share[0], share[1]), chunk_lines
        super().__init__(**job)

    def translate(self, corpus: str, out: str) -> None:
        """Do the share in a folder."""
        from keras_attention.decoding.result_lines import result_lines
        from keras_attention.recipes.bulk_folder import BulkFolder, TextFile
        from keras_attention.recipes.bulk_work import run_chunks

        def work(lines: list[Any], chunk: Any) -> str:
            found = result_lines(self.translator, lines, chunk.first, 1, False)
            return "".join(f"{line}\n" for line in found)

        folder = BulkFolder(out, [TextFile(corpus)], {"work": "benchmark"}, self.chunk_lines)
        run_chunks(folder, lambda: work, self.share, show_progress=False)


class Shares(Peer):
    """Processes that share a corpus; a sample is from the start of all to the end of the last.

    Their start and the loading of the model are no part of it.

    Args:
        folder: The job's, with `job.json`.
        processes: Their number, at most that of the CPUs.
        chunk_lines, batch_size: As for `Share`.
    """

    def __init__(self, folder: str, processes: int, chunk_lines: int, batch_size: int) -> None:
        cpus = sorted(os.sched_getaffinity(0))[:processes]
        if len(cpus) < processes:
            raise ValueError(f"{processes} processes need as many CPUs; there are {len(cpus)}.")
        self.folder = Path(folder)
        self.shares = [
            Worker(
                "peers.decoding.bulk:Share",
                {
                    "cpu": cpu,
                    "share": [index + 1, processes],
                    "chunk_lines": chunk_lines,
                    "folder": folder,
                    "batch_size": batch_size,
                },
                threads=1,
            )
            for index, cpu in enumerate(cpus)
        ]

    def build(self) -> dict[str, Any]:
        facts = self._all("prepare")[0]
        self._all("check")  # Compiles what its sentences need.
        self.work_of_a_share = facts.pop("work")
        return facts

    def work(self) -> dict[str, float]:
        return self.work_of_a_share

    def check(self) -> dict[str, Any]:
        self._sample()
        return {"sha256": self.sha256}

    def run(self, count: int) -> list[float]:
        return [self._sample() for _ in range(count)]

    def _sample(self) -> float:
        with tempfile.TemporaryDirectory(prefix="bulk-") as name:
            corpus, out = self.folder / "corpus.txt", Path(name, "out")
            start = time.perf_counter()
            self._all("translate", corpus=str(corpus), out=str(out))
            seconds = time.perf_counter() - start
            self.sha256 = hashlib.sha256((out / corpus.name).read_bytes()).hexdigest()
        return seconds

    def _all(self, command: str, **arguments: Any) -> list[Any]:
        with concurrent.futures.ThreadPoolExecutor() as threads:
            calls = [threads.submit(one.call, command, LIMIT, **arguments) for one in self.shares]
            return [call.result() for call in calls]
