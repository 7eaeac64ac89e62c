"""Whether this package wrote what is in a folder: known by the content, not by the names of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_attention.utils.files import read_signed_json, verify_files


def is_own_folder(folder: Path, manifest: str, key: str, verify: bool = True) -> bool:
    """Whether a folder holds what this package wrote, all of it, unchanged, and nothing else.

    Args:
        folder: The folder. It is listed only if the manifest is there.
        manifest: Name of the signed JSON file that lists the other files in its entry "sha256".
        key: Another entry that this kind of manifest has.
        verify: Whether to compare the checksums of the other files.
    """
    try:
        content: dict[str, Any] = read_signed_json(folder / manifest)
        listed = content["sha256"]
        found = {
            file.relative_to(folder).as_posix()
            for file in folder.rglob("*")
            if not file.is_dir() or file.is_symlink()
        }
        if key not in content or found - {manifest, *listed}:
            return False
        if verify:
            verify_files(folder, listed)
    except (OSError, ValueError, KeyError, TypeError):  # A damaged file is a ValueError.
        return False
    return True
