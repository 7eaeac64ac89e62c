"""Where a user's result may be written: nothing that somebody else made is replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from keras_attention.utils.checks import check_path

PathLike = str | os.PathLike[str]

# The longest of the marks that `files.py` puts before a name while it writes.
REPLACED = ".keras_attention-replaced-"


class OccupiedPath(FileExistsError, ValueError):
    """Something exists at a path that this package must not replace."""


def check_destination(
    path: PathLike,
    *,
    folder: bool = False,
    ours: Callable[[Path], bool] | None = None,
    overwrite: bool = False,
    sources: Iterable[PathLike] = (),
    option: str = "`overwrite=True`",
) -> Path:
    """Refuse a user's path that may not be written to, before the work begins; else return it.

    Something existing is replaced only if this package wrote it and the user passed `overwrite`.

    Args:
        path: Path to write to.
        folder: Whether a folder will be written, not a file.
        ours: Tells from its content whether this package wrote what exists at the path. None if that cannot
            be told; nothing is replaced then.
        overwrite: Whether to replace what this package wrote.
        sources: Files that are read to produce the result.
        option: What a user writes to have it replaced, for the message.

    Raises:
        OccupiedPath: If something exists that may not be replaced, or the path is one of the sources.
        ValueError: If the path's folder does not exist or cannot be written to, or the name is too long.
    """
    path = check_path("path", path)
    for source in sources:
        if path.exists() and Path(source).exists() and path.samefile(source):
            raise OccupiedPath(
                f"'{path}' is both a file to read and the file to write. Choose another one to write to."
            )
    check_kind(path, folder)
    is_taken = path.exists() and not (folder and is_empty(path))
    if is_taken and ours is not None and not ours(path):
        raise OccupiedPath(
            f"'{path}' exists, and keras_attention did not write it, or not all of it. Nothing was "
            "changed. Choose another path, or move it away."
        )
    if is_taken and not (ours and overwrite):
        raise OccupiedPath(
            f"'{path}' exists. Nothing was changed. Choose another path, or move it away"
            + (f", or pass {option} to replace it." if ours else ".")
        )
    parent = path.parent
    while folder and not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise ValueError(f"There is no folder '{parent}' to write '{path}' to. Create it.")
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"'{path}' cannot be written: nothing can be written to '{parent}' ({reason})."
        ) from None
    return path


def check_kind(path: Path, folder: bool) -> None:
    """Raise if there is something at a path that a file or folder must not replace: a link, a device, ..."""
    _check_length(path)
    kind = "folder" if folder else "file"
    if path.is_symlink():
        raise OccupiedPath(
            f"'{path}' is a link to '{os.readlink(path)}', and a {kind} would replace it. Pass the "
            "target of the link."
        )
    if folder and path.is_dir() and (os.path.ismount(path) or _is_in_use(path)):
        raise OccupiedPath(
            f"'{path}' is the current folder, holds it, or is a mount point, so that no other folder "
            "can take its place. Name a new folder in it."
        )
    if path.exists() and not (path.is_dir() if folder else path.is_file()):
        other = "folder" if path.is_dir() else "file" if path.is_file() else "device or the like"
        raise OccupiedPath(f"A {kind} cannot be written to '{path}': it is a {other}.")


def _check_length(path: Path) -> None:
    """Raise ValueError if a name leaves no room for the temporary one, as its file system counts."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        try:
            os.lstat(path.parent / f"{REPLACED}{path.name}")
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise ValueError(
                f"'{path}' cannot be written: its name has {len(os.fsencode(path.name))} bytes, and while it "
                f"is written {len(REPLACED)} more. Choose a shorter one."
            ) from None


def _is_in_use(folder: Path) -> bool:
    """Whether it is the current folder or above it."""
    with contextlib.suppress(FileNotFoundError):  # The current folder was deleted.
        return Path.cwd().is_relative_to(folder.resolve())
    return False


def is_empty(folder: Path) -> bool:
    """Whether there is nothing in a folder; lists no more than its first entry."""
    with os.scandir(folder) as entries:
        return next(entries, None) is None
