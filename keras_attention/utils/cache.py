"""Where this machine keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """`cache_dir`, else the folder $KERAS_ATTENTION_CACHE, else ~/.cache/keras_attention.

    >>> cache_folder("downloads").name
    'downloads'
    """
    default = Path.home() / ".cache" / "keras_attention"
    return Path(cache_dir or os.environ.get("KERAS_ATTENTION_CACHE") or default).expanduser()
