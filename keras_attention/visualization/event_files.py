"""Event files of TensorBoard, written and read without TensorFlow."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from keras_attention.utils.arguments import checked
from keras_attention.utils.files import naming_errors
from keras_attention.utils.lazily import check_event_files
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


_file_numbers = count()


class SummaryWriter:
    """Writes one TensorBoard event file into a folder: scalars and blobs.

    View it with `tensorboard --logdir FOLDER`. Everything is in the file once `flush` or `close` returns.
    Several writers may use a folder one after the other: a resumed run adds a file and writes some steps
    again. TensorBoard shows each step once, from the last writer: it hides what the earlier ones logged at
    or after the first step of that writer.

    Args:
        folder: Folder of the event file; made if absent.
        resumes: Whether the values belong to a training that starts or is resumed, as above. Pass False
            to add values to a finished training. Defaults to True.

    Raises:
        ImportError: If the packages `tensorboard` and `google-crc32c` are not installed.

    Example:

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SummaryWriter(folder) as writer:
    ...         writer.scalar("train/loss", 1.5, step=10)
    ...     [path.name.startswith("events.out.tfevents.") for path in Path(folder).iterdir()]
    [True]
    """

    @checked
    def __init__(self, folder: str | os.PathLike[str], resumes: bool = True):
        check_event_files()
        import google_crc32c

        # Only the event format: `tensorboard.summary` would import TensorFlow.
        from tensorboard.compat.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._metadata = summary_pb2.SummaryMetadata
        self._session_start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._marks_start = resumes
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files by this prefix, in the order of their names.
        number = f"{socket.gethostname()}.{os.getpid()}.{next(_file_numbers):06d}"
        self.path = self.folder / f"events.out.tfevents.{int(time.time()):010d}.{number}"
        self._checksum = google_crc32c.value
        self._file = open(self.path, "xb")
        self._write(file_version="brain.Event:2")
        self.flush()

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Add a number to the curve called `tag`, at `step`."""
        self._add(step, self._summary.Value(tag=tag, simple_value=float(value)))

    def blobs(self, tag: str, blobs: Sequence[bytes], step: int, plugin: str) -> None:
        """Add a sequence of blobs for a plugin of TensorBoard, such as the attention viewer.

        Args:
            tag: Name of the series.
            blobs: The bytes that the plugin reads, one by one.
            step: Training step of the blobs.
            plugin: Name of the plugin.
        """
        from tensorboard.compat.proto import tensor_pb2, tensor_shape_pb2, types_pb2

        metadata = self._metadata(
            plugin_data=self._metadata.PluginData(plugin_name=plugin),
            data_class="DATA_CLASS_BLOB_SEQUENCE",
        )
        size = tensor_shape_pb2.TensorShapeProto.Dim(size=len(blobs))
        tensor = tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            string_val=blobs,
            tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[size]),
        )
        self._add(step, self._summary.Value(tag=tag, metadata=metadata, tensor=tensor))

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        if not self._file.closed:
            with naming_errors(self.path):
                self._file.flush()

    def close(self) -> None:
        """Flushes and closes the file; a second call does nothing."""
        if not self._file.closed:
            with naming_errors(self.path):
                self._file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _add(self, step: int, value: Any) -> None:
        if self._marks_start:
            self._marks_start = False
            self._write(step=int(step), session_log=self._session_start)
        self._write(step=int(step), summary=self._summary(value=[value]))

    def _write(self, **fields: Any) -> None:
        if self._file.closed:
            raise ValueError(f"This SummaryWriter is closed: open a new one on {self.folder}.")
        event = self._event(wall_time=time.time(), **fields)
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        # TensorBoard's own writer computes the checksums in Python, byte by byte.
        record = [length, self._masked(length), content, self._masked(content)]
        with naming_errors(self.path):
            self._file.write(b"".join(record))

    def _masked(self, content: bytes) -> bytes:
        """Return the checksum as TFRecord files have it: rotated by 15 bits, with a constant added."""
        checksum = self._checksum(content)
        rotated = checksum >> 15 | checksum << 17
        return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)
