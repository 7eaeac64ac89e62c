"""The folder of bulk work: its inputs, their chunks, and which chunks are done. Needs no Keras."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import filelock

from keras_attention.data.parallel_text import zip_lines
from keras_attention.data.text_files import existing_file, lines_of, unpacked_name
from keras_attention.recipes.bulk_parts import (
    PARTS,
    Chunk,
    packed_part,
    part_folder,
    part_path,
    unpacked_part,
)
from keras_attention.utils.checks import check_iterable
from keras_attention.utils.files import OccupiedPath
from keras_attention.utils.places import (
    Folder,
    Place,
    check_place,
    check_remote_file,
    open_place,
    sha256_of_place,
)
from keras_attention.utils.progress import Progress
from keras_attention.utils.signed_json import DamagedFile, parse_signed_json, signed_json

MANIFEST = "manifest.json"
JOINED = "sha256"  # the manifest's entry for the results that are joined
REMEDY = "Choose another output folder."


class Input(Protocol):
    """An input that is cut into chunks of lines. Iterating over it gives its lines.

    Attributes:
        name: Name of its result.
    """

    name: str

    def __iter__(self) -> Iterator[Any]: ...

    def described(self, show_progress: bool) -> dict[str, Any]:
        """Read all lines, to find bad ones early; return the input's entry in the manifest, with "lines"."""

    def check(self, described: Mapping[str, Any], thoroughly: bool) -> None:
        """Raise a ValueError if the input, read wholly or checked quickly, is not that of the manifest."""


class TextFile:
    """The lines of a file in UTF-8, plain or packed; or pairs of lines of two files.

    Files are paths, or URLs that fsspec reads. The result gets the name of the last one, without ".gz" or the
    like.
    """

    def __init__(self, *files: Any) -> None:
        places = [check_place("inputs", file) for file in files]
        self.name = unpacked_name(places[-1].name)
        self.files: list[Place] = [
            existing_file(place) if isinstance(place, Path) else check_remote_file(place)
            for place in places
        ]

    def __iter__(self) -> Iterator[Any]:
        with contextlib.ExitStack() as opened:
            streams = [opened.enter_context(open_place(file)) for file in self.files]
            sides = [
                lines_of(stream, str(file))
                for stream, file in zip(streams, self.files, strict=True)
            ]
            yield from sides[0] if len(sides) == 1 else zip_lines(sides, self.files)

    def described(self, show_progress: bool) -> dict[str, Any]:
        """Return the number of lines, their sha256, and each file's size and sha256."""
        with Progress(None, f"reading {self.name}", enabled=show_progress):
            lines, text_sha256 = self._read_through()
            files = [
                {"path": str(file), "sha256": sha256_of_place(file), "bytes": file.stat().st_size}
                for file in self.files
            ]
        return {"lines": lines, "text_sha256": text_sha256, "files": files}

    def check(self, described: Mapping[str, Any], thoroughly: bool) -> None:
        """Raise a ValueError if the text changed. How it is packed does not matter."""
        different = [
            file
            for file, known in zip(self.files, described["files"], strict=True)
            if file.stat().st_size != known["bytes"]
            or (thoroughly and sha256_of_place(file) != known["sha256"])
        ]
        if different and self._read_through()[1] != described.get("text_sha256"):
            raise ValueError(
                f"'{different[0]}' changed since the work on it began. Restore the old file, or choose "
                "another output folder for the new one."
            )

    def _read_through(self) -> tuple[int, str]:
        """Return the number of lines, or pairs of them, and the sha256 of the text."""
        digest, lines = hashlib.sha256(), 0
        for line in self:
            text = line if isinstance(line, str) else "\n".join(line)
            digest.update(f"{text}\n".encode())
            lines += 1
        return lines, digest.hexdigest()


class BulkFolder:
    """An output folder: `manifest.json`, the results of chunks and, when these are joined, of inputs.

    Nothing is created or read before a method is called. The result of `corpus/a.en.gz` is called `a.en`.
    `settings` are everything that decides the results: the kind of work, fingerprints and options, as JSON.
    """

    def __init__(
        self, path: Any, inputs: Sequence[Input], settings: Mapping[str, Any], chunk_lines: int
    ):
        self.folder = Folder(check_place("output_dir", path))
        self.inputs = list(check_iterable("inputs", inputs))
        if not self.inputs:
            raise ValueError("`inputs` must name at least one file. Received: none")
        self.names = [one.name for one in self.inputs]
        for name in self.names:
            if self.names.count(name) > 1 or name in (MANIFEST, PARTS):
                raise ValueError(
                    f"Each result gets the name of its input, but '{name}' is taken. Rename an input, or "
                    "use several output folders."
                )
        self._settings = {**settings, "chunk_lines": chunk_lines, "inputs": self.names}
        self._described: list[dict[str, Any]] = []
        self._chunks: list[Chunk] = []

    def check(self) -> None:
        """Raise an OccupiedPath if the folder holds something other than this work. Nothing is changed."""
        names = self.folder.names()  # Before the manifest: another share may write it in between.
        if self.is_claimed():
            self._check_same(self._manifest())
        # Leftovers of a process that was killed before it wrote the manifest do not matter.
        elif any(not name.startswith(".keras_attention-") for name in names):
            raise OccupiedPath(
                f"'{self.folder}' exists but is not the folder of bulk work. Nothing was changed there. "
                f"{REMEDY}"
            )

    def is_claimed(self) -> bool:
        """Whether the manifest was written by an earlier start."""
        return self.folder.place(MANIFEST).is_file()

    def claim(self, show_progress: bool = False) -> None:
        """Claim the folder for this work: read all inputs once, and write the manifest."""
        self.folder.make()
        # Of several processes that start at once, one reads the inputs.
        with self.folder.locked(PARTS):
            self.check()
            if not self.is_claimed():
                found = [one.described(show_progress) for one in self.inputs]
                content = {"settings": self._settings, "inputs": found, JOINED: {}}
                self.folder.write(MANIFEST, signed_json(content))
            self._described = self._manifest()["inputs"]
        for one, described in zip(self.inputs, self._described, strict=True):
            one.check(described, thoroughly=False)
        numbers = itertools.count()
        step = self._settings["chunk_lines"]
        self._chunks = [
            Chunk(next(numbers), number, first, min(step, described["lines"] - first))
            for number, described in enumerate(self._described)
            for first in range(0, described["lines"], step)
        ]

    def missing(self, share: tuple[int, int] = (1, 1)) -> list[Chunk]:
        """Return the chunks without a result yet, of `(k, n)`: the k-th of n shares of the work, from 1."""
        k, n = share
        chunks = self._chunks[(k - 1) * len(self._chunks) // n : k * len(self._chunks) // n]
        joined = self.joined()
        left = [chunk for chunk in chunks if chunk.file not in joined]
        folders = {part_folder(chunk.file) for chunk in left}
        found = {f"{folder}/{name}" for folder in folders for name in self.folder.names(folder)}
        return [chunk for chunk in left if part_path(chunk) not in found]

    def check_inputs(self, chunks: Sequence[Chunk]) -> None:
        """Read through the inputs of these chunks; refuse one that changed since the manifest was written."""
        for number in sorted({chunk.file for chunk in chunks}):
            self.inputs[number].check(self._described[number], thoroughly=True)

    def read(self, chunks: Sequence[Chunk]) -> Iterator[tuple[Chunk, list[Any]]]:
        """Yield the lines of chunks, in order; at most one chunk is in memory."""
        for number, group in itertools.groupby(chunks, key=lambda chunk: chunk.file):
            lines, position = iter(self.inputs[number]), 0
            for chunk in group:
                wanted = itertools.islice(lines, chunk.first - position, None)
                texts = list(itertools.islice(wanted, chunk.lines))
                if len(texts) != chunk.lines:
                    raise ValueError(
                        f"'{self.names[number]}' was changed while it was read. Restore the old file, "
                        "and start again."
                    )
                position = chunk.first + chunk.lines
                yield chunk, texts

    def write(self, chunk: Chunk, result: str | bytes) -> None:
        """Keep the result of a chunk, whole or not at all."""
        content = result.encode() if isinstance(result, str) else result
        self.folder.write(part_path(chunk), packed_part(chunk, content))

    def parts(self, number: int) -> Iterator[bytes]:
        """Yield the results of an input's chunks, in order; raise DamagedFile at one that was changed."""
        for chunk in self._chunks:
            if chunk.file == number:
                part = self.folder.place(part_path(chunk))
                yield unpacked_part(part.read_bytes(), part, chunk)

    def join(self) -> list[Place]:
        """Join the chunks of each input that has all of them; return the results if there are all."""
        with self.folder.locked("join"):  # A process that waits here sees what the others did.
            missing = {chunk.file for chunk in self.missing()}
            self.join_inputs(missing)
            if missing:
                return []
            if not self.folder.names(PARTS):
                self.folder.remove(PARTS)
            self.folder.remove_leftovers()
            self._check_results()
            return self.results()

    def joined(self) -> set[int]:
        """Return the inputs that have their results; refuse a file with the name of a result that is none."""
        there = {
            number for number, name in enumerate(self.names) if self.folder.place(name).is_file()
        }
        if there and (known := self._manifest().get(JOINED)) is not None:
            foreign = [self.names[number] for number in there if self.names[number] not in known]
            if foreign:
                raise OccupiedPath(
                    f"'{self.folder.place(foreign[0])}' exists, and this work did not write it. Nothing "
                    "was changed. Move it away."
                )
        return there  # Older versions did not write down what they joined.

    def join_inputs(self, missing: Collection[int]) -> None:
        """Make the result of each input, except those with missing chunks."""
        joined = self.joined()
        for number, name in enumerate(self.names):
            if number in missing:
                continue
            if number not in joined:
                try:
                    with self.folder.writer(name) as result:
                        digest = hashlib.sha256()
                        for part in self.parts(number):
                            result.write(part)
                            digest.update(part)
                        # Before the result appears: without an entry it would be somebody else's.
                        self._write_down(name, digest.hexdigest())
                except FileNotFoundError:
                    if number not in self.joined():
                        raise
                    # Without locks, another process may have joined them in the meantime.
            self.folder.remove(part_folder(number))

    def _write_down(self, name: str, sha256: str) -> None:
        manifest = self._manifest()
        manifest[JOINED] = {**manifest.get(JOINED, {}), name: sha256}
        self.folder.write(MANIFEST, signed_json(manifest))

    def _check_results(self) -> None:
        """Raise DamagedFile if a result was changed after it was joined."""
        for name, sha256 in self._manifest().get(JOINED, {}).items():
            if sha256_of_place(self.folder.place(name)) != sha256:
                raise DamagedFile(
                    f"'{self.folder.place(name)}' was changed after it was written. Move it away: the "
                    "same command makes it again."
                )

    def results(self) -> list[Place]:
        """Where the results are."""
        return [self.folder.place(name) for name in self.names]

    @contextlib.contextmanager
    def working(self, share: tuple[int, int]) -> Iterator[None]:
        """Keep out a second process with the same share: a ValueError says that another one works on it."""
        k, n = share
        self.folder.make()
        try:
            with self.folder.locked(f"share-{k}-of-{n}", timeout=0):
                yield
        except filelock.Timeout:
            raise ValueError(
                f"Another process works on share {k} of {n} in '{self.folder}'. Nothing was changed. "
                "Wait for it, or stop it."
            ) from None

    def _manifest(self) -> dict[str, Any]:
        manifest = self.folder.place(MANIFEST)
        return parse_signed_json(manifest.read_bytes(), str(manifest), REMEDY)

    def _check_same(self, manifest: Mapping[str, Any]) -> None:
        there = manifest["settings"]
        # Where all is done, nothing is computed by another backend.
        is_done = manifest.get(JOINED, {}).keys() >= {*self.names}
        ignored = {"backend"} if is_done else set()
        names: Collection[str] = sorted({*there, *self._settings} - ignored)
        different = [
            f"{name}: {there.get(name)!r} there, {self._settings.get(name)!r} asked for"
            for name in names
            if there.get(name) != self._settings.get(name)
        ]
        if different:
            raise OccupiedPath(
                f"'{self.folder}' holds other bulk work ({'; '.join(different)}). Nothing was "
                f"changed there. {REMEDY[:-1]}, or use the same settings to continue it."
            )
