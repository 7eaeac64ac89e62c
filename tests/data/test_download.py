"""Downloads from a server of our own on 127.0.0.1, which can cut, refuse and forget."""

import hashlib
import random
import re
import socket
import threading

import pytest

from keras_attention.data import download as module
from keras_attention.data.download import download
from keras_attention.utils import progress
from keras_attention.utils.cache import cache_folder
from tests.data.archive_server import serving

pytestmark = pytest.mark.backends("tensorflow")

CONTENT = random.Random(7).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "DELAY", 0)
    with serving(CONTENT) as server:
        server.url += "/file.gz"
        yield server


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def once(monkeypatch):
    """No second attempt."""
    monkeypatch.setattr(module, "ATTEMPTS", 1)


def get(server, path, known=SHA256, **options):
    return download(server.url, path, known, **options)


def anything(path):
    """The check of a file of which no checksum is known."""


def test_complete_download(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    path = tmp_path / "deep" / "down" / "file.gz"
    assert get(server, str(path)) == path
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["file.gz"]
    assert "downloading file.gz: 300 of 300 kB" in capsys.readouterr().err
    get(server, path)  # What is there is not fetched again.
    assert server.ranges == [None] and capsys.readouterr() == ("", "")


def test_other_content_in_place_is_refused_and_kept(server, tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(b"the user's own")
    with pytest.raises(
        ValueError, match="expected content.*Delete .*file.gz' to download it again"
    ):
        get(server, path)
    assert path.read_bytes() == b"the user's own" and server.ranges == []


@pytest.mark.parametrize("tell_length", [True, False])
def test_resumes_after_cuts(server, tmp_path, tell_length):
    """Without a length only the checksum can tell a cut; the next call goes on from there."""
    path, server.cuts, server.tell_length = tmp_path / "file.gz", [100_000, 50_000], tell_length
    if tell_length:
        get(server, path)
        assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]
        assert path.read_bytes() == CONTENT
    else:
        with pytest.raises(ValueError, match="expected content"):
            get(server, path)
        assert list(tmp_path.iterdir()) == []


def test_resumes_in_a_later_call(server, tmp_path, once):
    path, server.cuts = tmp_path / "file.gz", [70_000]
    with pytest.raises(ConnectionError, match="ended after 70000 of 300000 bytes"):
        get(server, path)
    assert not path.exists()
    get(server, path)
    assert server.ranges == [None, "bytes=70000-"] and path.read_bytes() == CONTENT


def test_server_that_cannot_resume(server, tmp_path):
    path, server.cuts, server.resumable = tmp_path / "file.gz", [70_000], False
    get(server, path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("is_same", [True, False])
def test_a_part_is_gone_on_with_if_it_is_of_the_same_file(server, tmp_path, is_same, once):
    path, server.cuts, server.tag = tmp_path / "file.gz", [70_000], '"first"'
    with pytest.raises(ConnectionError):
        get(server, path, anything)
    assert names(tmp_path) == ["file.gz.part", "file.gz.part.validator"]
    if not is_same:
        server.content, server.tag = CONTENT[::-1], '"second"'
    get(server, path, anything)
    assert server.ranges == [None, "bytes=70000-"] and path.read_bytes() == server.content
    assert names(tmp_path) == ["file.gz", "file.gz.sha256"]


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_validator_and_checksum_it_is_begun_anew(server, tmp_path, tag):
    path, server.cuts, server.tag = tmp_path / "file.gz", [70_000], tag
    get(server, path, anything)
    assert server.ranges == [None, None] and path.read_bytes() == CONTENT


def test_a_range_that_was_not_asked_for_is_not_glued_on(server, tmp_path):
    path, server.cuts, server.shift, server.tag = tmp_path / "file.gz", [70_000], 7, '"first"'
    get(server, path, anything)
    assert server.ranges == [None, "bytes=70000-", None] and path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "more, ranges", [(b"", ["bytes=300000-"]), (b"more", ["bytes=300004-", None])]
)
def test_no_such_range_of_what_is_there(server, tmp_path, more, ranges):
    """The part is the whole file; or it is longer, and cannot be of it."""
    path = tmp_path / "file.gz"
    (tmp_path / "file.gz.part").write_bytes(CONTENT + more)
    get(server, path)
    assert server.ranges == ranges and path.read_bytes() == CONTENT


@pytest.mark.parametrize("address", ["ftp://127.0.0.1/file.gz", "file:///etc/passwd"])
def test_web_addresses_alone(server, tmp_path, address):
    server.redirect = address
    with pytest.raises(ConnectionError, match="Could not download"):
        get(server, tmp_path / "file.gz")
    with pytest.raises(ValueError, match="must be an http or https URL. Received"):
        download(address, tmp_path / "file.gz", SHA256)
    assert names(tmp_path) == []


def test_wrong_addresses_are_named(server, tmp_path):
    """urllib says "Invalid IPv6 URL", and not which."""
    server.redirect = "http://[::1/file"
    wrong = "http://localhost:abc/x", "http://localhost:9/a b"
    for address in (server.url, server.redirect, *wrong):
        with pytest.raises(ValueError, match=re.escape(f"{address} was not kept: its address")):
            download(address, tmp_path / "file.gz", anything)
    for address in ("https://", b"http://a", None):
        with pytest.raises(ValueError, match="must be an http or https URL"):
            download(address, tmp_path / "file.gz", anything)
    assert names(tmp_path) == []


def test_two_at_once_download_once(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENT_SECONDS", -1.0)
    path, server.seconds_a_byte, server.content = tmp_path / "file.gz", 0.002, CONTENT[:200]
    sha256, done = hashlib.sha256(server.content).hexdigest(), []
    threads = [
        threading.Thread(target=lambda: done.append(download(server.url, path, sha256)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [path, path] and server.ranges == [None]
    assert "waiting for another process" in capsys.readouterr().err


def test_changed_byte_is_refused(server, tmp_path):
    server.content = CONTENT[:1234] + bytes([CONTENT[1234] ^ 1]) + CONTENT[1235:]
    with pytest.raises(ValueError, match=f"Expected sha256: {SHA256}. Received: .*was removed"):
        get(server, tmp_path / "file.gz")
    assert list(tmp_path.iterdir()) == []


def test_without_a_checksum_what_the_check_refuses_is_not_kept(server, tmp_path):
    def check(path):
        raise ValueError(f"it begins with {path.read_bytes()[:3]}.")

    server.content = b"<p>Quota exceeded"
    with pytest.raises(ValueError, match=f"{server.url} was not kept: it begins with b'<p>'"):
        get(server, tmp_path / "file.gz", check)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("known", [SHA256, anything])
def test_a_body_without_end_is_ended(server, tmp_path, known):
    server.tell_length, server.endless = False, True
    with pytest.raises(ValueError, match="more than the 2,000,000 expected"):
        get(server, tmp_path / "file.gz", known, max_bytes=2_000_000)
    server.tell_length, server.endless, server.told_length = True, False, 3_000_000
    with pytest.raises(ValueError, match="it has 3,000,000 bytes, more than"):
        get(server, tmp_path / "file.gz", known, max_bytes=2_000_000)
    assert list(tmp_path.iterdir()) == []
    assert server.sent < 50_000_000


def test_another_programs_part_stays(server, tmp_path):
    """Browsers, too, keep what they have of a file under this name."""
    (tmp_path / "file.gz.part").write_bytes(b"theirs")
    with pytest.raises(ValueError, match="file.gz.part' exists, and this package did not write it"):
        get(server, tmp_path / "file.gz", anything)
    assert names(tmp_path) == ["file.gz.part"]
    assert (tmp_path / "file.gz.part").read_bytes() == b"theirs"


def test_busy_server_is_asked_again_and_a_missing_file_not(server, tmp_path):
    server.codes = [503, 429]
    get(server, tmp_path / "file.gz")
    assert len(server.ranges) == 3
    server.codes = [404]
    with pytest.raises(ConnectionError, match=f"Could not download {server.url}: .*404"):
        get(server, tmp_path / "other.gz")
    assert len(server.ranges) == 4


def test_no_server(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    waits = []
    monkeypatch.setattr(module, "DELAY", 0.5)
    monkeypatch.setattr(module.time, "sleep", waits.append)
    with pytest.raises(ConnectionError, match="Could not download"):
        download(f"http://127.0.0.1:{port}/x", tmp_path / "x", SHA256)
    assert waits == [0.5, 1.0, 2.0]


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_ATTENTION_CACHE", raising=False)
    assert cache_folder("wmt14") == tmp_path / ".cache" / "keras_attention" / "wmt14"
    monkeypatch.setenv("KERAS_ATTENTION_CACHE", "~/elsewhere")
    assert cache_folder("wmt14") == tmp_path / "elsewhere" / "wmt14"
    assert cache_folder("wmt14", tmp_path / "given") == tmp_path / "given" / "wmt14"
