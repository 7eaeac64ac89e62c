import errno
import json
import os

import numpy as np
import pytest

from keras_attention.callbacks import MetricsLog

pytestmark = pytest.mark.backends("tensorflow")

ENTRIES = [
    {"update": 100, "loss": 4.5, "note": "a\u2028b"},
    {"update": 200, "loss": 1e-7},
    {"update": 300, "loss": None},
]


@pytest.fixture
def log(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for entry in ENTRIES:
        log.write(entry)
    return log


def without_time(entries):
    return [{name: value for name, value in entry.items() if name != "time"} for entry in entries]


def test_round_trip(log):
    assert without_time(log.read()) == ENTRIES
    assert without_time(map(json.loads, log.path.read_text("utf-8").split("\n")[:1]))[0]["crc32"]


@pytest.mark.parametrize("cut", [1, 20])
def test_a_line_cut_short_is_not_glued_to_the_next(log, cut):
    content = log.path.read_bytes()
    log.path.write_bytes(content[:-cut])
    assert without_time(log.read()) == ENTRIES[:2]
    log.write(ENTRIES[2])
    assert without_time(log.read()) == ENTRIES
    log.path.write_bytes(content[:5])
    log.write(ENTRIES[0])
    assert without_time(log.read()) == ENTRIES[:1]


def test_flipped_bits_are_noticed(log):
    content, expected = log.path.read_bytes(), log.read()
    random = np.random.default_rng(5)
    noticed = 0
    for position in random.integers(len(content), size=300):
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.integers(8)
        log.path.write_bytes(damaged)
        try:
            found = log.read()
        except ValueError as error:
            assert "metrics.jsonl' is damaged: line" in str(error)
            noticed += 1
        else:  # In the name of the checksum, or in the end of the last line.
            for entry, right in zip(found, expected, strict=False):
                assert entry.items() >= right.items()
    assert noticed > 200


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_names_the_file(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"metrics\.jsonl' could not be written: No space") as caught:
        MetricsLog(tmp_path / "metrics.jsonl").write(ENTRIES[0])
    assert caught.value.errno == errno.ENOSPC


def test_keep_until_removes_later_entries(log):
    log.keep_until(200)
    assert without_time(log.read()) == ENTRIES[:2]
    log.keep_until(0)
    assert log.read() == []


def test_reads_what_older_versions_wrote(log):
    log.path.write_text('{"update": 1}\n')
    assert log.read() == [{"update": 1}]


@pytest.mark.parametrize("content", ["my diary, without an end of line", "one\ntwo\nthr"])
def test_another_file_keeps_its_last_line(tmp_path, content):
    (tmp_path / "diary").write_text(content)
    with pytest.raises(ValueError, match="diary' is (no log|damaged: line 1)"):
        MetricsLog(tmp_path / "diary").write({"update": 1})
    assert (tmp_path / "diary").read_text() == content
