"""The cache folder, for files that can be downloaded or computed again."""

from __future__ import annotations

import functools
import os
import stat
import tempfile
from pathlib import Path

from keras_attention.utils.progress import say

VARIABLE = "KERAS_ATTENTION_CACHE"


def cache_folder(name: str, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return a folder in `cache_dir`, `$KERAS_ATTENTION_CACHE` or `~/.cache/keras_attention`.

    Where it cannot be written to, as in many containers, a private folder of the temporary files takes its
    place, and a line on the standard error says so once. Files that are in it already are used all the same.
    """
    if cache_dir is not None:
        return Path(cache_dir).expanduser() / name
    named = os.environ.get(VARIABLE)
    try:
        root = Path(named or "~/.cache/keras_attention").expanduser()
    except RuntimeError as error:  # Neither a variable nor the system knows a home.
        return _instead_of(f"'{named or '~'}'", str(error)) / name
    problem = _problem_of(root / name)
    has_files = problem and (root / name).is_dir() and any((root / name).iterdir())
    return root / name if has_files or not problem else _instead_of(f"'{root}'", problem) / name


def _problem_of(folder: Path) -> str:
    """Why a folder cannot be made or written to; "" if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


@functools.cache
def _instead_of(cache: str, problem: str) -> Path:
    """Return a folder of the temporary files that only this user can use, and say that it is used."""
    folder = _private_folder()
    say(
        f"The cache {cache} cannot be written to ({problem.rstrip('.')}), so '{folder}' takes its place. "
        f"To choose a folder that lasts, set {VARIABLE}."
    )
    return folder


def _private_folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(tempfile.gettempdir()) / f"keras_attention-{user}".rstrip("-")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        found = None
    # Anybody may have made a folder or a link of that name, to have us run what they put there.
    if found and stat.S_ISDIR(found.st_mode):
        if os.name == "nt" or (found.st_uid == user and not found.st_mode & 0o077):
            return folder
    return Path(tempfile.mkdtemp(prefix="keras_attention-"))
