"""Reads TensorBoard event files, record by record."""

import struct

from tensorboard.compat.proto import event_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from keras_attention_viewer import Entry


def read_events(folder):
    """All events of all event files in a folder; checks the checksums."""
    events = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            data = content[12 : 12 + length]
            assert struct.unpack("<I", content[8:12]) == (masked_crc32c(content[:8]),)
            assert struct.unpack("<I", content[12 + length : 16 + length]) == (masked_crc32c(data),)
            events.append(event_pb2.Event.FromString(data))
            content = content[16 + length :]
    return events


def read_values(folder):
    """{tag: [(step, value), ...]}: numbers or entries of attention."""
    values = {}
    for event in read_events(folder):
        for value in event.summary.value:
            values.setdefault(value.tag, []).append((event.step, _content(value)))
    return values


def _content(value):
    if value.WhichOneof("value") == "simple_value":
        return value.simple_value
    assert value.metadata.plugin_data.plugin_name == "attention"
    return Entry.from_blobs(list(value.tensor.string_val))
