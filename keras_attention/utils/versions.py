"""What a result was made with: versions of this package and of others, and the machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path

import keras_attention
from keras_attention.utils.backend import running_backend

LIBRARIES = (
    *("keras", "tensorflow", "jax", "torch", "numba", "ctranslate2"),
    *("sentencepiece", "sacrebleu", "numpy"),
)


def environment() -> dict[str, str]:
    """Return the versions of Python and of what a result depends on, the backend, and the machine."""
    return {
        "python": platform.python_version(),
        "backend": running_backend(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of this package and of the libraries that a result depends on, as far as installed.

    If the package runs from a checkout of Git, `"commit"` is the commit. Changes since are not seen.
    """
    found = {"keras_attention": keras_attention.__version__}
    commit = checked_out_commit(Path(keras_attention.__file__).resolve().parents[1])
    if commit is not None:
        found["commit"] = commit
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def checked_out_commit(root: Path) -> str | None:
    """Return the commit in a folder that is a checkout of Git, by its files; None in any other folder."""
    with contextlib.suppress(OSError, ValueError):
        git = root / ".git"
        if git.is_file():  # of a further work tree
            git = root / git.read_text("utf-8").removeprefix("gitdir: ").strip()
        head = (git / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref: "):
            return head
        branch = head.removeprefix("ref: ")
        common = git
        if (git / "commondir").is_file():
            common = git / (git / "commondir").read_text("utf-8").strip()
        for folder in (git, common):
            if (folder / branch).is_file():
                return (folder / branch).read_text("utf-8").strip()
        for line in (common / "packed-refs").read_text("utf-8").splitlines():
            if line.endswith(f" {branch}"):
                return line.split()[0]
    return None
