"""Work on large text files in chunks of lines, by this process or by a Ray cluster. Needs no Keras.

The disk says what is done: `manifest.json` has the settings and the checksums of the inputs, `parts/` a file
for each chunk that is done. When there are all, those of an input are joined to its result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.parallel_text import zip_lines
from keras_attention.data.text_files import existing_file, lines_of, unpacked_name
from keras_attention.utils.backend import running_backend
from keras_attention.utils.files import DamagedFile, OccupiedPath, remove_leftovers
from keras_attention.utils.folder import claimed
from keras_attention.utils.places import Place, check_place, names_in, reading, writing
from keras_attention.utils.progress import Progress
from keras_attention.utils.run_folder import differences
from keras_attention.utils.signed_json import parse_signed_json, signed_json

MANIFEST, PARTS = "manifest.json", "parts"
JOINED = "joined"  # the manifest's entry for the names of the results
REMEDY = "Choose another output folder."
# Ray starts a dead worker again, on any machine, and gives it the chunk that it had. A chunk that kills its
# worker each time, and a worker that dies at each start, end the work.
MAX_RESTARTS, MAX_TASK_RETRIES = 20, 4
# Environment variables of this process that the workers get, so that they compute the same.
PASSED_ON = ("KERAS_BACKEND", "KERAS_FLOATX", "PYTHONPATH", "RAY_AUTH_MODE")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """So many `lines` of the input number `file` from line `first` on; numbers begin with 0."""

    file: int
    first: int
    lines: int

    @property
    def part(self) -> str:
        """The file of its result in the output folder."""
        return f"{PARTS}/{self.file:05d}/{self.first:012d}"

    def sha256(self, result: bytes) -> bytes:
        """Return a checksum of the result, and of what it is the result of."""
        place = f"{self.file} {self.first} {self.lines}\n"
        return hashlib.sha256(place.encode() + result).hexdigest().encode()


# Called once in each worker, to load what the work needs. It returns the function that takes the lines of a
# chunk, and the chunk, and returns the result.
Job = Callable[[], Callable[[list[Any], Chunk], str]]


class TextFile:
    """The lines of a file in UTF-8, plain or packed; or tuples of the lines of several files.

    Files are paths, or URLs that fsspec reads. The result gets the name of the last one, without ".gz" or the
    like.
    """

    def __init__(self, *files: Any) -> None:
        places = [check_place("inputs", file) for file in files]
        self.name = unpacked_name(places[-1].name)
        if not self.name:
            raise ValueError(
                f"The result gets the name of its input, but '{files[-1]}' has none. "
                "Name a file, not a folder."
            )
        self.files = [existing_file(one) if isinstance(one, Path) else one for one in places]

    def __iter__(self) -> Iterator[Any]:
        with contextlib.ExitStack() as opened:
            streams = [opened.enter_context(reading(file)) for file in self.files]
            sides = [
                lines_of(stream, str(file))
                for stream, file in zip(streams, self.files, strict=True)
            ]
            yield from sides[0] if len(sides) == 1 else zip_lines(sides, self.files)

    def described(self, show_progress: bool) -> dict[str, Any]:
        """Read all lines; return their number and their sha256, which do not depend on the packing."""
        digest, lines = hashlib.sha256(), 0
        with Progress(None, f"reading {self.name}", enabled=show_progress):
            for line in self:
                digest.update(repr(line).encode())
                lines += 1
        return {"name": self.name, "lines": lines, "sha256": digest.hexdigest()}


class BulkWork:
    """Work on text files whose results get a folder, perhaps in a bucket.

    The folder is a new one, or that of the same work, which is then continued: `settings`, as JSON, are all
    that decides the results. The result of `corpus/a.en.gz` is called `a.en`.
    """

    def __init__(
        self,
        output_dir: Any,
        inputs: Sequence[TextFile],
        settings: Mapping[str, Any],
        chunk_lines: int,
    ):
        self.folder, self.inputs = check_place("output_dir", output_dir), [*inputs]
        names = [one.name for one in self.inputs]
        if not names:
            raise ValueError("`inputs` must name at least one file. Received: none")
        if taken := [n for n in names if names.count(n) > 1 or n in (MANIFEST, PARTS)]:
            raise ValueError(
                f"Each result gets the name of its input, but '{taken[0]}' is taken. Rename an input, or "
                "use several output folders."
            )
        self.settings = {**settings, "chunk_lines": chunk_lines, "names": names}

    def run(
        self,
        job: Job,
        ray: bool | str = False,
        workers: int | None = None,
        show_progress: bool = True,
        what: str = "translating",
    ) -> list[Place]:
        """Do what is missing, and return the results; see `translate_corpus`."""
        with self._alone():
            chunks = self._claim(show_progress)
            missing = self._missing(chunks)
            if missing:
                total, items = sum(chunk.lines for chunk in missing), self._read(missing)
                done = in_this_process(job, items)
                if ray:
                    done = on_ray(job, None if ray is True else ray, workers, items)
                with (
                    Progress(total, what, "lines", show_progress) as progress,
                    contextlib.closing(done),
                ):
                    for chunk, result in done:
                        content = result.encode()
                        with writing(self.folder / chunk.part) as file:
                            file.write(chunk.sha256(content) + b"\n" + content)
                        progress.add(chunk.lines)
            return self._join(chunks)

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes out. Buckets have no locks."""
        if not isinstance(self.folder, Path):
            return contextlib.nullcontext()
        if self.folder.exists() and not self.folder.is_dir():
            raise OccupiedPath(f"'{self.folder}' is a file, and the results get a folder. {REMEDY}")
        self.folder.mkdir(parents=True, exist_ok=True)
        return claimed(self.folder, "texts", lock=self.folder / PARTS)

    def _claim(self, show_progress: bool) -> list[Chunk]:
        """Read all inputs once, write the manifest or compare with it, and return all chunks."""
        names = names_in(self.folder)
        there = self._manifest() if MANIFEST in names else {}
        # Without any result, the folder may be used for something else.
        is_begun = bool(there) and bool(there[JOINED] or names_in(self.folder / PARTS))
        # Leftovers of a process that was killed before it wrote the manifest do not matter.
        if not there and any(not name.startswith(".keras_attention-") for name in names):
            raise OccupiedPath(
                f"'{self.folder}' exists but is not the folder of bulk work. Nothing was changed there. "
                f"{REMEDY}"
            )
        known = there["settings"] if is_begun else self.settings
        if different := differences(known, self.settings):
            raise OccupiedPath(
                f"'{self.folder}' holds other bulk work ({'; '.join(different.values())}). Nothing was "
                f"changed there. {REMEDY[:-1]}, or use the same settings to continue it."
            )
        found = [one.described(show_progress) for one in self.inputs]
        for old, new in zip(there["inputs"] if is_begun else found, found, strict=True):
            if old != new:
                raise ValueError(
                    f"The text of '{new['name']}' changed since the work on it began. Restore the old file, "
                    "or choose another output folder for the new one."
                )
        if not is_begun:
            self._write_manifest({"settings": self.settings, "inputs": found, JOINED: []})
        step = self.settings["chunk_lines"]
        return [
            Chunk(number, first, min(step, one["lines"] - first))
            for number, one in enumerate(found)
            for first in range(0, one["lines"], step)
        ]

    def _missing(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        joined = self._joined()
        left = [chunk for chunk in chunks if chunk.file not in joined]
        folders = {chunk.part.rpartition("/")[0] for chunk in left}
        found = {
            f"{folder}/{name}" for folder in folders for name in names_in(self.folder / folder)
        }
        return [chunk for chunk in left if chunk.part not in found]

    def _joined(self) -> set[int]:
        """Return the inputs that have their results; refuse a file with the name of a result that is none."""
        known, there = self._manifest()[JOINED], names_in(self.folder)
        found = {number for number, one in enumerate(self.inputs) if one.name in there}
        if foreign := [self.inputs[n].name for n in found if self.inputs[n].name not in known]:
            raise OccupiedPath(
                f"'{self.folder / foreign[0]}' exists, and this work did not write it. Nothing was changed. "
                "Move it away."
            )
        return found

    def _read(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Any]]]:
        """Yield the lines of chunks, in order; at most one chunk is in memory."""
        for number, group in itertools.groupby(chunks, key=lambda chunk: chunk.file):
            lines, position = iter(self.inputs[number]), 0
            for chunk in group:
                wanted = itertools.islice(lines, chunk.first - position, None)
                position = chunk.first + chunk.lines
                found = [*itertools.islice(wanted, chunk.lines)]
                if len(found) < chunk.lines:
                    raise ValueError(
                        f"'{self.inputs[number].name}' has become shorter while it was read: it ends after "
                        f"{chunk.first + len(found):,} lines. What is done is kept. Restore the file, and "
                        "start again."
                    )
                yield chunk, found

    def _join(self, chunks: Sequence[Chunk]) -> list[Place]:
        joined = self._joined()
        for number, one in enumerate(self.inputs):
            if number not in joined:
                with writing(self.folder / one.name) as result:
                    for chunk in chunks:
                        if chunk.file == number:
                            result.write(self._part(chunk))
                    # Before the result appears: without an entry it would be somebody else's.
                    manifest = self._manifest()
                    manifest[JOINED] = sorted({*manifest[JOINED], one.name})
                    self._write_manifest(manifest)
        if isinstance(self.folder, Path):
            shutil.rmtree(self.folder / PARTS, ignore_errors=True)
            remove_leftovers(self.folder)
        elif names_in(self.folder / PARTS):
            self.folder.fs.rm((self.folder / PARTS).path, recursive=True)
        return [self.folder / one.name for one in self.inputs]

    def _part(self, chunk: Chunk) -> bytes:
        place = self.folder / chunk.part
        sha256, _, result = place.read_bytes().partition(b"\n")
        if sha256 != chunk.sha256(result):
            raise DamagedFile(
                f"'{place}' is damaged: it was cut off or changed. Delete it: the same command makes it "
                "again."
            )
        return result

    def _manifest(self) -> dict[str, Any]:
        manifest = self.folder / MANIFEST
        return parse_signed_json(manifest.read_bytes(), str(manifest), REMEDY)

    def _write_manifest(self, content: Mapping[str, Any]) -> None:
        with writing(self.folder / MANIFEST) as file:
            file.write(signed_json(content))


def in_this_process(
    job: Job, chunks: Iterable[tuple[Chunk, list[Any]]]
) -> Generator[tuple[Chunk, str], None, None]:
    """Yield each chunk and its result."""
    work = job()
    for chunk, lines in chunks:
        yield chunk, work(lines, chunk)


def on_ray(
    job: Job, address: str | None, workers: int | None, chunks: Iterator[tuple[Chunk, list[Any]]]
) -> Generator[tuple[Chunk, str], None, None]:
    """Yield chunks and their results, in the order in which Ray's workers have done them.

    Without an address: the cluster that `RAY_ADDRESS` names, else one that runs on this machine, else a new
    one here. Without a number of workers: one for each GPU or, without GPUs, for each CPU.
    """
    with _connected(address) as ray:
        count, actors = _actors(ray, job, workers)
        try:
            pool, given = ray.util.ActorPool(actors), 0
            while True:
                # Each worker has a chunk, and another one waits here, so that none waits for this process.
                for item in itertools.islice(chunks, 2 * count - given):
                    pool.submit(lambda actor, item: actor.work.remote(*item), item)
                    given += 1
                if not given:
                    return
                if given < 2 * count:
                    # No chunk is left: idle workers make room for one that lost its machine.
                    while (idle := pool.pop_idle()) is not None:
                        ray.kill(idle)
                try:
                    done = pool.get_next_unordered()
                except ray.exceptions.RayTaskError as error:
                    raise error.as_instanceof_cause() from None
                except ray.exceptions.RayActorError as error:
                    raise RuntimeError(
                        f"A worker cannot start, or dies each time with the same chunk: {error} If memory is "
                        "too small, lower `batch_tokens` or `workers`."
                    ) from error
                given -= 1
                yield done
        finally:
            for one in actors:
                ray.kill(one)


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster; one that is started here ends with the block."""
    try:
        import ray
        import ray.util
    except ImportError as error:
        raise ImportError(
            "Work on a cluster needs Ray: pip install 'keras-attention-transformer[ray]'"
        ) from error
    is_own = not ray.is_initialized()
    if is_own:
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        ray.init(
            address,
            log_to_driver=False,
            logging_level=logging.WARNING,
            runtime_env={"env_vars": {**variables, "KERAS_BACKEND": running_backend()}},
        )
    try:
        yield ray
    finally:
        if is_own:
            ray.shutdown()


def _actors(ray: Any, job: Job, workers: int | None) -> tuple[int, list[Any]]:
    """Start so many workers, or one for each device; each machine fetches the model once."""
    resources = ray.cluster_resources()
    kind = "GPU" if resources.get("GPU", 0) >= 1 else "CPU"
    actor: Any = ray.remote(_Worker).options(
        num_cpus=1,
        num_gpus=int(kind == "GPU"),
        scheduling_strategy="SPREAD",
        max_restarts=MAX_RESTARTS,
        max_task_retries=MAX_TASK_RETRIES,
    )
    stored = ray.put(job)
    count = workers or max(1, int(resources.get(kind, 1)))
    return count, [actor.remote(stored) for _ in range(count)]


class _Worker:
    """Runs in a process of Ray's; its constructor loads the model."""

    def __init__(self, job: Job):
        self._work = job()

    def work(self, chunk: Chunk, lines: list[Any]) -> tuple[Chunk, str]:
        return chunk, self._work(lines, chunk)
