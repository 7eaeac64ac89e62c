"""Reads TensorBoard event files, without importing TensorFlow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_attention_viewer.codec import PLUGIN_NAME, RecordError, decode_header


def read_events(folder: str | os.PathLike[str]) -> Iterator[Any]:
    """Read the events of all event files in a folder, in the order of the files.

    Args:
        folder: The folder with the event files, such as `logs/` of a run.

    Raises:
        FileNotFoundError: If there is no event file.
    """
    # Not `tensorboard.backend.event_processing`: it would import TensorFlow.
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    files = sorted(Path(folder).glob("events.out.tfevents.*"))
    if not files:
        raise FileNotFoundError(f"There is no TensorBoard event file in '{folder}'.")
    for file in files:
        reader = PyRecordReader_New(str(file))
        while True:
            try:
                reader.GetNext()
            except Exception as error:  # tensorboard's own out-of-range error ends the file
                if type(error).__name__ != "OutOfRangeError":
                    raise
                break
            yield event_pb2.Event.FromString(reader.record())


def logged_heads(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what the last attention record in event files says about the heads of the model.

    Args:
        folder: The folder with the event files.

    Returns:
        The header of that record; empty if there is none that can be read, or TensorBoard is not there.
    """
    try:
        from tensorboard.compat.tensorflow_stub.errors import DataLossError
    except ImportError:
        return {}
    found = []
    with contextlib.suppress(
        FileNotFoundError, DataLossError
    ):  # what comes before the damage is read
        for event in read_events(folder):
            for value in event.summary.value:
                is_ours = value.metadata.plugin_data.plugin_name == PLUGIN_NAME
                if is_ours and value.tag.endswith("/reference") and value.tensor.string_val:
                    found.append((event.step, value.tensor.string_val[0]))
    try:
        return decode_header(max(found, key=lambda one: one[0])[1]) if found else {}
    except RecordError:
        return {}
