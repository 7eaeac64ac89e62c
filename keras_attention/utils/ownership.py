"""Whether this package wrote what is in a folder: known by the content, not by the names of the files."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from keras_attention.utils.files import read_signed_json, verify_files


def is_own_folder(
    folder: Path, manifest: str, *keys: str, verify: bool = True, beside: tuple[str, ...] = ()
) -> bool:
    """Whether a folder holds what this package wrote, all of it, unchanged, and nothing else.

    Args:
        folder: The folder. It is listed only if the manifest is there, and folders in it only if the manifest
            lists files there.
        manifest: Name of the signed JSON file that lists the other files in its entry "sha256".
        *keys: Further entries that this kind of manifest has.
        verify: Whether to compare the checksums of the other files.
        beside: Names that are allowed as well; the caller checks them.
    """
    try:
        content: dict[str, Any] = read_signed_json(folder / manifest)
        listed = content["sha256"]
        if not all(key in content for key in keys):
            return False
        if not _has_only({manifest, *listed, *beside}, folder):
            return False
        if verify:
            verify_files(folder, listed)
    except (OSError, ValueError, KeyError, TypeError):  # A damaged file is a ValueError.
        return False
    return True


def _has_only(names: Collection[str], folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds nothing but these, which may be paths with "/"."""
    with os.scandir(folder) as entries:
        for entry in entries:
            within = {name.partition("/")[2] for name in names if name.startswith(f"{entry.name}/")}
            is_folder = bool(within) and entry.is_dir(follow_symlinks=False)
            if entry.name not in names and not (is_folder and _has_only(within, entry.path)):
                return False
    return True
