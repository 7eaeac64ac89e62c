import errno
import json
import math
import os

import pytest

from keras_attention.callbacks import MetricsLog
from keras_attention.utils.files import DamagedFile

pytestmark = pytest.mark.backends("tensorflow")

ENTRIES = [
    {"update": 100, "loss": 4.5, "note": "a\u2028b ü"},
    {"update": 200, "loss": 1e-7},
    {"update": 300, "loss": None, "rate": None},
]


@pytest.fixture
def log(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for entry in (*ENTRIES[:2], {"update": 300, "loss": math.nan, "rate": math.inf}):
        log.write(entry)
    return log


def without_time(entries):
    return [{name: value for name, value in entry.items() if name != "time"} for entry in entries]


def test_round_trip(log):
    assert without_time(log.read()) == ENTRIES
    lines = log.path.read_text("utf-8").split("\n")
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines[:-1]]
    assert without_time(found) == ENTRIES and lines[-1] == ""


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


def test_a_line_that_is_no_object_is_named(log):
    for line in (b"[1]", b"\xff{}", b"{'update': 1}"):
        log.path.write_bytes(b'{"update": 1}\n' + line + b"\n")
        with pytest.raises(DamagedFile, match=r"metrics.jsonl' is damaged.*delete line 2"):
            log.read()


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


@pytest.mark.parametrize("content", ["my diary, without an end of line", "one\ntwo\nthr"])
def test_another_file_keeps_its_last_line(tmp_path, content):
    (tmp_path / "diary").write_text(content)
    with pytest.raises(ValueError, match="diary' is (no log|damaged.*delete line 1)"):
        MetricsLog(tmp_path / "diary").write({"update": 1})
    assert (tmp_path / "diary").read_text() == content
