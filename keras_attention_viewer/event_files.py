"""Find event files that end in the middle of a record: TensorBoard leaves out the rest without a message."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

# A record: length (8 bytes), its checksum (4), the data, their checksum (4).
HEAD_BYTES, FOOT_BYTES = 12, 4


def record_end(records: BinaryIO, position: int, size: int) -> int | None:
    """Return where the record at `position` ends; None if it is cut off or its length is damaged.

    The data are not read: their checksum takes seconds in Python. `records` then stands at their beginning.
    """
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    records.seek(position)
    head = records.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        return None
    length, checksum = struct.unpack("<QI", head)
    end = position + HEAD_BYTES + length + FOOT_BYTES
    return None if end > size or masked_crc32c(head[:8]) != checksum else end


class EventFiles:
    """Looks for cut-off event files of runs; when a file has grown, it continues where it stopped."""

    def __init__(self) -> None:
        self._whole: dict[Path, int] = {}

    def problems(self, folder: Path) -> list[str]:
        """Sentences about the event files directly in this folder that are cut off or damaged."""
        try:
            files = sorted(folder.glob("*tfevents*"))
        except OSError:
            return []
        return [
            f"The event file '{file.name}' ends in the middle of a record: the program that wrote it "
            "was killed, the disk was full, or it is still writing. What comes before is shown."
            for file in files
            if not self._is_whole(file)
        ]

    def _is_whole(self, file: Path) -> bool:
        """Whether the file consists of whole records; reads their lengths, not their data."""
        try:
            size = file.stat().st_size
            with file.open("rb") as records:
                position = self._whole.get(file, 0)
                if position > size:  # another file by now
                    position = 0
                while position < size:
                    end = record_end(records, position, size)
                    if end is None:
                        return False
                    self._whole[file] = position = end
        except OSError:
            return True  # gone, or not ours to read: TensorBoard says so
        return True
