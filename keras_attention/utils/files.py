"""Files that are written whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a crash leaves the old one or the new one."""
    path = Path(path)
    partial = path.with_name(f".partial-{path.name}")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
