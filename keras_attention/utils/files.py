"""Files and folders that are written whole or not at all, and verified when they are read.

A file is written under a temporary name in the same folder, under a lock, and renamed once it is on the
disk. So if the process is killed at any moment, the old file or the new one is left. The holder of the lock
knows that an existing temporary file is the leftover of a dead process.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from keras_attention.utils.checks import check_path
from keras_attention.utils.signed_json import DamagedFile, parse_json, signed_json

PathLike = str | os.PathLike[str]

# Long enough that no other program's file starts with them: such files are deleted as leftovers.
PARTIAL = ".keras_attention-partial-"
REPLACED = ".keras_attention-replaced-"
LOCK = ".keras_attention-lock-"


class OccupiedPath(FileExistsError, ValueError):
    """Something exists at a path that this package must not replace."""


def write_atomically(path: PathLike, content: str | bytes) -> None:
    """Write a file so that a crash or a full disk leaves the old one or the new one.

    Args:
        path: The file; an existing one is replaced.
        content: Bytes, or text to be written as UTF-8.

    Raises:
        OSError: If the file cannot be written. The message names it.
    """
    with atomic_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def atomic_file(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file to write to, which appears when the block ends, or not at all if it fails.

    Args:
        path: The file; an existing one is replaced.
        mode: `"wb"`, or `"w"` for UTF-8 text with `"\\n"` as line ends.

    Raises:
        OccupiedPath: If something other than a file exists at the path.
        OSError: If the file cannot be written. The message names it.

    Example:

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lines.txt"
    >>> with atomic_file(path, "w") as file:
    ...     _ = file.write("first")
    ...     path.exists()
    False
    >>> path.read_text()
    'first'
    """
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with atomic_path(path) as partial, open(partial, mode, **text) as file:
        yield file


@contextlib.contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Like `atomic_file`, but return a path to write to, for code that opens the file itself."""
    path = Path(path)
    _check_kind(path, folder=False)
    with _partial(path) as partial:
        yield partial
        flush(partial)
        os.replace(partial, path)
        flush(path.parent)


@contextlib.contextmanager
def atomic_folder(path: PathLike, replace: bool = False) -> Iterator[Path]:
    """A folder to fill, which gets its name when the block ends and is removed if it fails.

    Args:
        path: The folder to make; its parents are made as well.
        replace: Whether to replace an existing folder with everything in it. If a user chose the path,
            call `check_destination` first. Defaults to False.

    Yields:
        The folder to write into.

    Raises:
        OccupiedPath: If anything but an empty folder exists at the path; with `replace`, anything but a
            folder.
        OSError: If the folder cannot be written. The message names it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_kind(path, folder=True)
    with _partial(path) as partial:
        _restore_replaced(path)
        if not replace:
            _check_free(path)
        partial.mkdir()
        yield partial
        for file in partial.rglob("*"):
            flush(file)
        flush(partial)
        replaced = path.with_name(f"{REPLACED}{path.name}")
        if path.exists():
            os.rename(path, replaced)
        os.rename(partial, path)
        flush(path.parent)
        _remove(replaced)


def remove_folder(path: PathLike) -> None:
    """Delete a folder. If the process is killed meanwhile, no half-deleted folder keeps its name."""
    path = Path(path)
    with _partial(path) as partial:
        os.rename(path, partial)
        shutil.rmtree(partial, ignore_errors=True)


def remove_leftovers(folder: PathLike) -> None:
    """Delete the temporary files of killed processes in a folder, but not those of running ones."""
    folder = Path(folder)
    names = {
        file.name.removeprefix(prefix)
        for prefix in (PARTIAL, REPLACED, LOCK)
        for file in folder.glob(f"{prefix}*")
    }
    for name in names:
        with contextlib.suppress(Timeout, OSError), _partial(folder / name, timeout=0):
            _restore_replaced(folder / name)


@contextlib.contextmanager
def locked(path: PathLike, timeout: float = -1) -> Iterator[None]:
    """Keep other processes and threads from writing to a path. A killed process holds no lock.

    Args:
        path: A file or folder, which need not exist; its parent must.
        timeout: Seconds to wait for another holder; negative to wait for ever.

    Raises:
        filelock.Timeout: If another held the lock all the time.
        OSError: If no lock can be made there.
    """
    path = Path(path)
    lock = path.with_name(f"{LOCK}{path.name}")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(FileLock(lock, timeout=timeout))
        except Timeout:
            if not lock.exists():  # Nobody holds it; filelock waits also where no file can be made.
                os.close(os.open(lock, os.O_CREAT | os.O_WRONLY))
            raise
        try:
            yield
        finally:
            # Deleted while it is held: waiting processes then lock the new file.
            with contextlib.suppress(OSError):
                lock.unlink()


def check_destination(
    path: PathLike,
    *,
    folder: bool = False,
    ours: Callable[[Path], bool] | None = None,
    overwrite: bool = False,
    sources: Iterable[PathLike] = (),
    option: str = "`overwrite=True`",
) -> Path:
    """Raise unless a user's path may be written to. Call it before the work begins.

    Something existing is replaced only if this package wrote it and the user passed `overwrite`.

    Args:
        path: Path to write to.
        folder: Whether a folder will be written, not a file. Defaults to False.
        ours: A function that tells from its content whether this package wrote what exists at the path.
            None if that cannot be told; nothing is replaced then.
        overwrite: Whether to replace what this package wrote. Defaults to False.
        sources: Files that are read to produce the result.
        option: What a user writes to have it replaced, for the message. Defaults to the argument.

    Returns:
        The path.

    Raises:
        OccupiedPath: If something exists that may not be replaced, a link or device among them, or the
            path is one of the sources.
        ValueError: If the path's folder does not exist or cannot be written to.

    Example:

    >>> import tempfile
    >>> check_destination(tempfile.mkdtemp() + "/new.txt").name
    'new.txt'
    """
    path = check_path("path", path)
    for source in sources:
        if path.exists() and Path(source).exists() and path.samefile(source):
            raise OccupiedPath(
                f"'{path}' is both a file to read and the file to write. Choose another one to write to."
            )
    _check_kind(path, folder)
    is_taken = any(path.iterdir()) if folder and path.exists() else path.exists()
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
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ValueError(f"'{path}' cannot be written: no permission to write to '{parent}'.")
    return path


def check_still_there(folder: PathLike) -> None:
    """Raise FileNotFoundError if a folder in use has disappeared, instead of making an empty one."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            f"The folder '{folder}' was deleted or moved while it was in use: the work stops",
        )


@contextlib.contextmanager
def naming_errors(path: PathLike) -> Iterator[None]:
    """Add the file's name to errors of writing to it; on a full disk, the system's errors lack it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, f"'{path}' could not be written: {error.strerror}") from error


def write_json(path: PathLike, value: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all, with its own sha256 in the entry `"checksum"`."""
    write_atomically(path, signed_json(value))


def read_json(path: PathLike, remedy: str = "", unsigned: bool = False) -> dict[str, Any]:
    """Read what `write_json` wrote.

    Args:
        path: The file.
        remedy: A sentence for the error message: what the user can do.
        unsigned: Whether to accept a file without a checksum, as older versions wrote it. Defaults to
            False.

    Returns:
        The object, without the checksum.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedFile: If the file was changed after it was written.
    """
    return parse_json(Path(path).read_bytes(), path, remedy, unsigned)


def sha256_of(path: PathLike) -> str:
    """Hex sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_files(folder: PathLike, sha256: Mapping[str, str], remedy: str = "") -> None:
    """Raise unless the files of a folder have these checksums. A process reads an unchanged file once.

    Args:
        folder: The folder.
        sha256: Checksum of each file, by its name.
        remedy: A sentence for the error message: what the user can do.

    Raises:
        DamagedFile: If a file is missing or has another checksum. The message names it.
    """
    for name in sha256:
        if name != Path(name).name:
            raise DamagedFile(f"'{name}' is not a file in '{folder}'. {remedy}".strip())
    # hashlib lets other threads run meanwhile.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        found = list(threads.map(_known_sha256, [Path(folder) / name for name in sha256]))
    for (name, expected), (received, problem) in zip(sha256.items(), found, strict=True):
        if received != expected:
            what = problem or f"has sha256 {received:.12}.., expected {expected:.12}.."
            raise DamagedFile(f"'{Path(folder) / name}' is damaged: it {what}. {remedy}".strip())


def flush(path: PathLike) -> None:
    """Flush a file or a folder to the disk."""
    if os.name == "nt" and Path(path).is_dir():  # Windows cannot open folders.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _partial(path: Path, timeout: float = -1) -> Iterator[Path]:
    """Yield the temporary name for a path, under a lock; it is free at the start and end of the block."""
    partial = path.with_name(f"{PARTIAL}{path.name}")
    try:
        with locked(path, timeout):
            _remove(partial)  # The leftover of a killed process.
            try:
                yield partial
            finally:
                _remove(partial)
    except OSError as error:
        # Errors of writing name no file, errors of opening one that the user does not know.
        name = "" if error.filename is None else Path(os.fsdecode(error.filename)).name
        is_own = error.errno is not None and (not name or name.startswith((PARTIAL, LOCK)))
        if is_own and type(error) in (OSError, PermissionError, FileNotFoundError):
            inner = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise OSError(
                error.errno,
                f"'{path}' could not be written: {inner.strerror or inner}. What was there before "
                "is unchanged",
            ) from inner
        raise


def _check_kind(path: Path, folder: bool) -> None:
    """Raise if there is something at a path that a file or folder must not replace: a link, a device, ..."""
    kind = "folder" if folder else "file"
    if path.is_symlink():
        raise OccupiedPath(
            f"'{path}' is a link to '{os.readlink(path)}', and a {kind} would replace it. Pass the "
            "target of the link."
        )
    if path.exists() and not (path.is_dir() if folder else path.is_file()):
        other = "folder" if path.is_dir() else "file" if path.is_file() else "device or the like"
        raise OccupiedPath(f"A {kind} cannot be written to '{path}': it is a {other}.")


def _check_free(path: Path) -> None:
    if path.exists() and any(path.iterdir()):
        raise OccupiedPath(f"'{path}' exists and is not empty. Choose another folder.")


def _restore_replaced(path: Path) -> None:
    """Restore a folder that a killed process had moved away; delete it if the new one is complete."""
    replaced = path.with_name(f"{REPLACED}{path.name}")
    if replaced.exists() and not path.exists():
        os.rename(replaced, path)
    _remove(replaced)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _known_sha256(path: Path) -> tuple[str | None, str]:
    """The checksum of a file, or what is wrong with it."""
    try:
        state = path.stat()
        return _sha256_in_state(path, state.st_size, state.st_mtime_ns, state.st_ino), ""
    except OSError as error:
        return None, f"cannot be read ({error})"


@functools.lru_cache(maxsize=256)
def _sha256_in_state(path: Path, size: int, modified: int, inode: int) -> str:
    return sha256_of(path)
