"""Event files, read back record by record, and by TensorBoard itself."""

import contextlib
import errno
import importlib.util
import os

import numpy as np
import pytest

from keras_attention import SummaryWriter
from tests.visualization.event_files import read_events, read_values

pytestmark = pytest.mark.backends("tensorflow")


def test_values_come_back(tmp_path):
    with SummaryWriter(tmp_path / "new" / "folder") as writer:
        writer.scalar("train/loss", 2.5, step=3)
        writer.scalar("train/loss", np.float32(1.25), step=2**40)
    values = read_values(tmp_path / "new" / "folder")
    assert values == {"train/loss": [(3, 2.5), (2**40, 1.25)]}


def test_a_file_begins_with_its_version(tmp_path):
    SummaryWriter(tmp_path).close()
    (event,) = read_events(tmp_path)
    assert event.file_version == "brain.Event:2"
    assert event.wall_time > 1.7e9


def test_tensorboard_reads_it(tmp_path):
    """TensorBoard's own reader imports TensorFlow where it can: hence on TensorFlow alone."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with SummaryWriter(tmp_path) as writer:
        writer.scalar("validation/bleu", 27.5, step=8)
        writer.blobs("attention", [b"abc"], step=9, plugin="attention")
    accumulator = EventAccumulator(str(tmp_path)).Reload()
    tags = accumulator.Tags()
    assert (tags["scalars"], tags["tensors"]) == (["validation/bleu"], ["attention"])
    (scalar,) = accumulator.Scalars("validation/bleu")
    assert (scalar.step, scalar.value) == (8, 27.5)
    (blobs,) = accumulator.Tensors("attention")
    assert (blobs.step, list(blobs.tensor_proto.string_val)) == (9, [b"abc"])


def test_flush_makes_values_readable_while_the_file_is_open(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.scalar("a", 1.5, step=1)
    writer.flush()
    assert read_values(tmp_path) == {"a": [(1, 1.5)]}
    writer.close()


def test_two_writers_share_a_folder(tmp_path):
    with SummaryWriter(tmp_path) as first, SummaryWriter(tmp_path) as second:
        first.scalar("a", 1.0, step=1)
        second.scalar("a", 2.0, step=2)
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(read_values(tmp_path)["a"]) == [(1, 1.0), (2, 2.0)]


def test_after_close(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.close()
    writer.close()
    writer.flush()
    with pytest.raises(ValueError, match=f"closed: open a new one on {tmp_path}"):
        writer.scalar("a", 1.0, step=1)


@pytest.mark.parametrize("missing", ["tensorboard", "google_crc32c"])
def test_without_what_it_needs(missing, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == missing else find(n))
    with pytest.raises(ImportError, match="pip install tensorboard google-crc32c"):
        SummaryWriter(tmp_path / "logs")
    assert not any(tmp_path.iterdir())


def test_the_first_value_marks_the_start_of_a_session(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.scalar("loss", 2.5, step=30)
        writer.scalar("loss", 2.0, step=40)
    with SummaryWriter(tmp_path / "added", resumes=False) as writer:
        writer.scalar("loss", 2.5, step=30)
    events = read_events(tmp_path)
    assert [event.step for event in events if event.HasField("session_log")] == [30]
    assert events[1].session_log.status == events[1].session_log.START
    assert not any(event.HasField("session_log") for event in read_events(tmp_path / "added"))


def test_blobs_come_back_with_their_last_zeros(tmp_path):
    blobs = [b"\x00\x01\x00\x00", b"", b"abc"]
    with SummaryWriter(tmp_path) as writer:
        writer.blobs("attention/0/reference", blobs, step=7, plugin="attention")
    value = read_events(tmp_path)[-1].summary.value[0]
    assert list(value.tensor.string_val) == blobs
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == [3]
    assert value.metadata.plugin_data.plugin_name == "attention"
    assert value.metadata.data_class == 3  # DATA_CLASS_BLOB_SEQUENCE


def test_files_are_read_in_the_order_in_which_they_were_made(tmp_path):
    """TensorBoard takes them by name, and many can be made within a second."""
    paths = []
    for _ in range(12):
        with SummaryWriter(tmp_path) as writer:
            paths.append(writer.path)
    assert sorted(paths) == paths


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("act", [
    lambda writer: writer.flush(),
    lambda writer: writer.blobs("x", [bytes(100_000)], 1, "x"),  # more than is buffered
    lambda writer: writer.close(),
])  # fmt: skip
def test_full_disk_names_the_file(tmp_path, act):
    writer = SummaryWriter(tmp_path)
    (number,) = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{name}") == str(writer.path.resolve())
    ]
    writer.scalar("train/loss", 1.0, 1)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, number)
    os.close(full)
    with pytest.raises(OSError, match="tfevents.*' could not be written: No space") as caught:
        act(writer)
    assert caught.value.errno == errno.ENOSPC
    with contextlib.suppress(OSError):
        writer.close()
