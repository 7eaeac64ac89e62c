"""Folders that this package writes, each with a manifest, and verifies when it reads them.

A kind of folder (a token store, a tokenizer, a checkpoint, a spec, a preset, an export) is a `Folder`. It is
written in an `atomic_folder` of `files.py`, whole or not at all. Folders that grow, of a run or of bulk work,
are `claimed` by one process at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from keras_attention.utils.files import (
    DamagedFile,
    PathLike,
    check_destination,
    json_bytes,
    locked,
    sha256_of,
    verify_files,
    write_signed_json,
)
from keras_attention.utils.signed_json import parse_json, parse_signed_json


class OtherFolder(ValueError):
    """A folder is not of the kind that is asked for, or of a version that is not read."""


@dataclasses.dataclass(frozen=True)
class Folder:
    """A kind of folder: known by its manifest, which has the size and the sha256 of all other files.

    The manifest is a JSON object with its own sha256, which also says which version of the package wrote it.

    Example:

    >>> import tempfile
    >>> from keras_attention.utils.files import atomic_folder
    >>> notes = Folder("notes", "notes.json", "author", "Write them again.")
    >>> path = Path(tempfile.mkdtemp()) / "notes"
    >>> with atomic_folder(path) as partial:
    ...     _ = (partial / "monday").write_text("rain")
    ...     notes.seal(partial, {"author": "me"})
    >>> notes.read(path)["size"]
    {'monday': 4}
    >>> _ = (path / "monday").write_text("sun!")
    >>> notes.is_ours(path)
    False
    """

    what: str  # its name, for messages
    manifest: str  # name of the manifest
    key: str  # an entry that only manifests of this kind have
    remedy: str  # what a user does if a file is missing or damaged, as a sentence
    version: int = 1  # Version of the format. Manifests that do not say any are of version 1.

    def seal(
        self, folder: Path, entries: Mapping[str, Any], files: Collection[str] | None = None
    ) -> None:
        """Write the manifest, after all other files; by default, it lists those that are in the folder."""
        if files is None:
            found = sorted(file for file in folder.rglob("*") if file.is_file())
            files = [file.relative_to(folder).as_posix() for file in found]
        # By name: what is below imports no package's root, which imports all.
        root = importlib.import_module("keras_attention")
        manifest = {
            "format_version": self.version,
            "written_by": f"keras_attention {root.__version__}",
            **entries,
            "size": {name: (folder / name).stat().st_size for name in files},
            "sha256": {name: sha256_of(folder / name) for name in files},
        }
        write_signed_json(folder / self.manifest, manifest)

    def read(self, folder: PathLike, verify: bool = True) -> dict[str, Any]:
        """Return what the manifest says, after comparing it, and by default all files, with their checksums.

        Raises:
            OtherFolder: If the folder is of another kind, or of a version that is not read.
            DamagedFile: If a file is missing, cut off or changed; the message names it.
        """
        path = Path(folder) / self.manifest
        try:
            content = json_bytes(path, self.remedy)
        except (FileNotFoundError, NotADirectoryError):
            raise OtherFolder(f"'{folder}' is no {self.what}: it has no {self.manifest}.") from None
        except OSError as error:
            text = f"'{path}' is damaged: it cannot be read ({error.strerror}). {self.remedy}"
            raise DamagedFile(text) from None
        manifest = parse_json(content, path, self.remedy)
        sha256, sizes = manifest.get("sha256", {}), manifest.get("size", {})
        if self.key not in manifest or not isinstance(sha256, dict) or not isinstance(sizes, dict):
            raise OtherFolder(f"'{path}' does not say that '{folder}' is a {self.what}.")
        signed = parse_signed_json(content, path, self.remedy)
        manifest = {"sha256": sha256, "size": sizes, **signed}
        version = manifest.get("format_version", 1)
        if version != self.version:
            by = manifest.get("written_by", "another version")
            raise OtherFolder(
                f"'{path}' has format version {version!r}, of {by}; this package reads version "
                f"{self.version}. Update keras_attention. If it is older: {self.remedy}"
            )
        if verify:
            verify_files(folder, sha256, self.remedy, sizes)
        return manifest

    def is_ours(self, folder: Path, verify: bool = True) -> bool:
        """Whether a folder is one of these, whole, unchanged and with nothing else in it."""
        try:
            listed = self.read(folder, verify)["sha256"]
            # Listed only now: a folder of somebody else's may hold millions.
            found = (file for file in folder.rglob("*") if not file.is_dir() or file.is_symlink())
            return all(
                file.relative_to(folder).as_posix() in {self.manifest, *listed} for file in found
            )
        except (OSError, ValueError, KeyError):
            return False

    def check_destination(self, path: PathLike, overwrite: bool, **words: str) -> Path:
        """Call `check_destination` for a path where one of these will be written."""
        return check_destination(path, folder=True, ours=self.is_ours, overwrite=overwrite, **words)


@contextlib.contextmanager
def claimed(
    path: PathLike, what: str, timeout: float = 0, lock: PathLike | None = None
) -> Iterator[None]:
    """Keep other processes out of a folder, which need not exist. A killed process holds no claim.

    `what` is done there, for messages; `timeout` seconds are waited. The lock is beside the folder unless it
    is said where.

    Raises:
        ValueError: If another process has it.
        OSError: If nothing can be written there.
    """
    # One lock for a folder, also where a link leads there, or "." names it.
    lock = Path(path if lock is None else lock).resolve()
    with contextlib.ExitStack() as held:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(lock, timeout))
        except filelock.Timeout:
            raise ValueError(
                f"Another process works on the {what} in '{path}'. Nothing was changed there. "
                "Wait for it, stop it, or choose another output folder."
            ) from None
        except OSError as error:
            message = f"The folder '{path}' of the {what} cannot be written: {error.strerror}"
            raise OSError(error.errno, f"{message}. Choose another output folder") from error
        yield
