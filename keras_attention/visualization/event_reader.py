"""Reads what TensorBoard event files say of the heads of a model, without importing TensorFlow."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keras_attention_viewer.codec import PLUGIN_NAME, RecordError, decode_header
from keras_attention_viewer.event_files import FOOT_BYTES, HEAD_BYTES, record_end


def logged_heads(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what the last attention record in event files says about the heads of the model.

    As in TensorBoard, a writer that starts at a step hides what the files before it hold from that step on.
    """
    found: list[tuple[int, Path, int]] = []  # steps and places only: a log may have many megabytes
    try:
        for file in sorted(Path(folder).glob("events.out.tfevents.*")):
            for position, event, _ in _unchecked_events(file):
                if event.session_log.status == event.session_log.START:
                    found = [one for one in found if one[0] < event.step]
                if _head_blob(event) is not None:
                    found.append((event.step, file, position))
        for _, file, position in reversed(found):
            _, event, is_whole = next(_unchecked_events(file, position))
            if is_whole():
                return decode_header(_head_blob(event) or b"")
    except (ImportError, RecordError):
        pass
    return {}


def _unchecked_events(
    file: Path, position: int = 0
) -> Iterator[tuple[int, Any, Callable[[], bool]]]:
    """Read events with their places and what checks their data, up to one that is cut off."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    size = file.stat().st_size
    with file.open("rb") as records:
        while (end := record_end(records, position, size)) is not None:
            data = records.read(end - position - HEAD_BYTES - FOOT_BYTES)
            foot = records.read(FOOT_BYTES)

            def is_whole(data: bytes = data, foot: bytes = foot) -> bool:
                return struct.pack("<I", masked_crc32c(data)) == foot

            with contextlib.suppress(DecodeError):
                yield position, event_pb2.Event.FromString(data), is_whole
            position = end


def _head_blob(event: Any) -> bytes | None:
    """Return the header of an event's attention record, as it is stored; None if it has none."""
    for value in event.summary.value:
        is_ours = value.metadata.plugin_data.plugin_name == PLUGIN_NAME
        if is_ours and value.tag.endswith("/reference") and value.tensor.string_val:
            return bytes(value.tensor.string_val[0])
    return None
