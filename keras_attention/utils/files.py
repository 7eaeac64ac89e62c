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
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from keras_attention.utils.destinations import (  # noqa: F401
    REPLACED,
    OccupiedPath,
    check_destination,
    check_kind,
    is_empty,
)
from keras_attention.utils.signed_json import (
    CHECKSUM,
    DamagedFile,
    parse_json,
    parse_signed_json,
    plain_json,
    signed_json,
)

PathLike = str | os.PathLike[str]

# Long enough that no other program's file starts with them: such files are deleted as leftovers.
PARTIAL = ".keras_attention-partial-"
LOCK = ".keras_attention-lock-"
LARGEST_JSON = 1 << 28  # bytes
# What a file system answers that has no locks (Lustre, some NFS), or flushes no folders (WSL, some FUSE).
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
NO_FLUSH = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM}


def write_atomically(path: PathLike, content: str | bytes) -> None:
    """Write bytes or text to a file, so that a crash or a full disk leaves the old one or the new one."""
    with atomic_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextlib.contextmanager
def atomic_file(path: PathLike, mode: str = "wb", is_new: bool = False) -> Iterator[IO[Any]]:
    """Open a file to write to, which appears when the block ends, or not at all if it fails.

    Args:
        path: The file; an existing one is replaced.
        mode: `"wb"`, or `"w"` for UTF-8 text with `"\\n"` as line ends.
        is_new: Whether a file that exists, or that another process writes, is left alone.

    Raises:
        OccupiedPath: If something other than a file exists at the path; with `is_new`, if anything does.
        OSError: If the file cannot be written. The message names it.
    """
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with atomic_path(path, is_new) as partial, open(partial, mode, **text) as file:
        yield file


@contextlib.contextmanager
def atomic_path(path: PathLike, is_new: bool = False) -> Iterator[Path]:
    """Like `atomic_file`, but return a path to write to, for code that opens the file itself."""
    path = Path(path)
    check_kind(path, folder=False)
    with contextlib.ExitStack() as lock:
        try:
            partial = lock.enter_context(_partial(path, timeout=0 if is_new else -1))
        except Timeout:
            raise OccupiedPath(f"Another process writes '{path}'. Choose another path.") from None
        _check_new(path, is_new)
        yield partial
        flush(partial)
        _check_new(path, is_new)  # Another program may have been faster.
        os.replace(partial, path)
        flush(path.parent)


@contextlib.contextmanager
def atomic_folder(path: PathLike, replace: bool = False) -> Iterator[Path]:
    """Make a folder to fill, which gets its name when the block ends and is removed if it fails.

    Its parents are made as well. With `replace`, an existing folder is replaced with everything in it: if
    a user chose the path, call `check_destination` first.

    Raises:
        OccupiedPath: If anything but an empty folder exists at the path; with `replace`, anything but a
            folder.
        OSError: If the folder cannot be written. The message names it.
    """
    path = Path(path)
    path = path.resolve() if path.name == ".." else path
    check_kind(path, folder=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"'{error.filename}': {error.strerror}"
        raise OSError(error.errno, f"'{path}' could not be written, for {reason}") from error
    with _partial(path) as partial:
        _restore_replaced(path)
        if not replace and path.exists() and not is_empty(path):
            raise OccupiedPath(f"'{path}' exists and is not empty. Choose another folder.")
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
    with contextlib.suppress(OSError):
        if names and not _can_lock(folder / f"{LOCK}{min(names)}"):
            return  # The living cannot be told from the dead.
    for name in names:
        with contextlib.suppress(Timeout, OSError), _partial(folder / name, timeout=0):
            _restore_replaced(folder / name)


@contextlib.contextmanager
def locked(path: PathLike, timeout: float = -1) -> Iterator[None]:
    """Keep other processes and threads from writing to a path. A killed process holds no lock.

    The path need not exist; its parent must. A negative time-out waits for ever. A file system without locks
    keeps nobody away, which a warning says.

    Raises:
        filelock.Timeout: If another held the lock all the time.
        OSError: If no lock can be made there.
    """
    path = Path(path)
    lock = path.with_name(f"{LOCK}{path.name}")
    # Where no file can be made, as below /proc, or none be locked, filelock would wait for ever.
    has_locks = _can_lock(lock)
    with FileLock(lock, timeout=timeout) if has_locks else contextlib.nullcontext():
        try:
            yield
        finally:
            # Deleted while it is held: waiting processes then lock the new file.
            with contextlib.suppress(OSError):
                lock.unlink()


def _can_lock(lock: Path) -> bool:
    """Make the file of a lock; say whether its file system has locks, and warn if it has none."""
    descriptor = os.open(lock, os.O_CREAT | os.O_WRONLY)
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, BlockingIOError):  # Windows; another has it.
        pass
    except OSError as error:
        if error.errno in NO_LOCKS:
            warnings.warn(  # Without the path: it is shown once.
                f"A file system that is written to has no locks ({error.strerror}). See to it that one "
                "process at a time writes there. If HDF5 files cannot be opened, set "
                "HDF5_USE_FILE_LOCKING=FALSE.",
                stacklevel=1,
            )
            return False
    finally:
        os.close(descriptor)
    return True


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
    """Write a JSON object, whole or not at all."""
    write_atomically(path, plain_json(value))


def json_bytes(path: PathLike, remedy: str = "") -> bytes:
    """Read a JSON file whose size nobody has checked: it must not take all memory."""
    if (size := Path(path).stat().st_size) > LARGEST_JSON:
        raise DamagedFile(f"'{path}' is damaged: it has {size:,} bytes. {remedy}".strip())
    return Path(path).read_bytes()


def read_json(path: PathLike, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a file, without the checksum that earlier versions wrote."""
    value = parse_json(json_bytes(path, remedy), path, remedy)
    value.pop(CHECKSUM, None)
    return value


def write_signed_json(path: PathLike, value: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all, with its own sha256 in the entry `"checksum"`."""
    write_atomically(path, signed_json(value))


def read_signed_json(path: PathLike, remedy: str = "") -> dict[str, Any]:
    """Read what `write_signed_json` wrote; like `read_json`, but a changed file is a `DamagedFile`."""
    return parse_signed_json(json_bytes(path, remedy), path, remedy)


def sha256_of(path: PathLike) -> str:
    """Hex sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_files(
    folder: PathLike,
    sha256: Mapping[str, str],
    remedy: str = "",
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Raise unless the files of a folder have these checksums. A process reads an unchanged file once.

    Files are named by their paths in the folder, with "/". One whose size is known and wrong is not read. The
    error ends with the remedy.
    """
    for name in sha256:
        if not is_inside(name):
            raise DamagedFile(f"'{name}' is not a file in '{folder}'. {remedy}".strip())
        file = Path(folder) / name
        size = file.stat().st_size if file.is_file() else None
        wanted = (sizes or {}).get(name, size)
        if size is None or size != wanted:
            what = "is missing" if size is None else f"has {size:,} bytes, expected {wanted!r}"
            raise DamagedFile(f"'{file}' is damaged: it {what}. {remedy}".strip())
    # hashlib lets other threads run meanwhile.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        found = list(threads.map(_known_sha256, [Path(folder) / name for name in sha256]))
    for (name, expected), (received, problem) in zip(sha256.items(), found, strict=True):
        if received != expected:
            what = problem or f"has sha256 {received:.12}.., expected {expected!s:.12}.."
            raise DamagedFile(f"'{Path(folder) / name}' is damaged: it {what}. {remedy}".strip())


def is_inside(name: str) -> bool:
    """Whether a name, or a path with "/", leads to a file in a folder and not out of it."""
    return all(part not in ("", "..") and part == Path(part).name for part in name.split("/"))


def flush(path: PathLike) -> None:
    """Flush a file or a folder to the disk; a folder only where the system can do that."""
    is_folder = Path(path).is_dir()
    if os.name == "nt" and is_folder:  # Windows cannot open folders.
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not is_folder:
            raise
        if error.errno not in NO_FLUSH:  # With its name: what is in the folder is there already.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error


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


def _check_new(path: Path, is_new: bool) -> None:
    if is_new and path.exists():
        raise OccupiedPath(f"'{path}' exists. It was left as it is. Choose another path.")


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
    """Return the checksum of a file, or what is wrong with it."""
    try:
        state = path.stat()
        return _sha256_in_state(path, state.st_size, state.st_mtime_ns, state.st_ino), ""
    except OSError as error:
        return None, f"cannot be read ({error})"


@functools.lru_cache(maxsize=256)
def _sha256_in_state(path: Path, size: int, modified: int, inode: int) -> str:
    return sha256_of(path)
