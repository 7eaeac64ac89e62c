"""Processes chunks in this process, a job array or a Ray cluster. Killed work can be continued."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_attention.recipes.bulk_folder import BulkFolder
from keras_attention.recipes.bulk_parts import Chunk
from keras_attention.utils.checks import check_boolean, check_integer
from keras_attention.utils.places import Place
from keras_attention.utils.progress import Progress, say

# Takes the lines of a chunk, and the chunk; returns its result.
Work = Callable[[list[Any], Chunk], str | bytes]
# Called once in each worker: loads what the work needs, and returns the work.
Job = Callable[[], Work]


def check_spread(share: Any, ray: Any, workers: Any, show_progress: Any) -> None:
    """Raise a ValueError unless these are arguments of `run_chunks`."""
    if not isinstance(share, tuple | list) or len(share) != 2:
        raise ValueError(
            f"`share` must be a pair (k, n) of integers, k from 1 to n. Received: {share!r}"
        )
    check_integer("share[0]", share[0], 1, check_integer("share[1]", share[1], 1))
    check_boolean("show_progress", show_progress)
    if not isinstance(ray, bool | str):
        raise ValueError(f"`ray` must be True, False or an address. Received: {ray!r}")
    if workers is not None:
        check_integer("workers", workers, 1)
        if not ray:
            raise ValueError(f"`workers` needs `ray`. Received: workers={workers}")


def run_chunks(
    folder: BulkFolder,
    job: Job,
    share: tuple[int, int] = (1, 1),
    ray: bool | str = False,
    workers: int | None = None,
    show_progress: bool = True,
    what: str = "translating",
) -> list[Place]:
    """Process the missing chunks of a folder, as `translate_corpus` does, by the work that `job` returns.

    Returns the results, one for each input; an empty list while other shares are missing.
    """
    folder.check()
    if ray:
        from keras_attention.recipes.bulk_ray import RayWorkers

        pool: Any = RayWorkers(job, None if ray is True else ray, workers)
    else:
        pool = LocalWorker(job)
    with contextlib.closing(pool), folder.working(share):
        if not folder.is_claimed():
            pool.start()  # Errors in the job show up before there is a manifest.
        folder.claim(show_progress)
        missing = folder.missing(share)
        folder.check_inputs(missing)
        total = sum(chunk.lines for chunk in missing)
        with Progress(total, what, "lines", show_progress) as progress:
            if missing:
                for chunk, result in pool(folder.read(missing)):
                    folder.write(chunk, result)
                    progress.add(chunk.lines)
        joined = folder.join()
    if show_progress and not joined:
        left = sum(chunk.lines for chunk in folder.missing())
        say(
            f"This share is done. In '{folder.folder}', {left:,} lines of other shares are missing."
        )
    return joined


class LocalWorker:
    """Processes chunks in this process, by the function from lines to a result that the job returns."""

    def __init__(self, job: Job):
        self.start = functools.cache(job)  # What the work needs is loaded once.

    def __call__(
        self, chunks: Iterable[tuple[Chunk, list[Any]]]
    ) -> Iterator[tuple[Chunk, str | bytes]]:
        for chunk, lines in chunks:
            yield chunk, self.start()(lines, chunk)

    def close(self) -> None:
        """Nothing to release."""


@contextlib.contextmanager
def unpacked(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Make a temporary folder with these files, from which a worker on any machine can load."""
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            path = Path(name, file)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        yield Path(name)


def packed(paths: Iterable[Path], root: Path) -> dict[str, bytes]:
    """Return the content of files by their paths relative to a folder, for `unpacked`."""
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}
