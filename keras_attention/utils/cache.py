"""The cache folder, for files that can be downloaded or computed again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return `cache_dir`, or else $KERAS_ATTENTION_CACHE, or else ~/.cache/keras_attention.

    >>> cache_folder("downloads").name
    'downloads'
    """
    default = Path.home() / ".cache" / "keras_attention"
    return Path(cache_dir or os.environ.get("KERAS_ATTENTION_CACHE") or default).expanduser()
