"""Where files are kept that can be made again, also in a container without a home."""

import os
import pwd
import stat
import tempfile

import pytest

from keras_attention.utils import cache
from keras_attention.utils.backend import check_backend

pytestmark = pytest.mark.backends("tensorflow")


@pytest.fixture
def no_home(tmp_path, monkeypatch):
    """A home that is a file, and a folder of temporary files."""
    (tmp_path / "home").write_text("")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    cache._instead_of.cache_clear()
    yield tmp_path / "tmp"
    cache._instead_of.cache_clear()


def test_a_private_folder_takes_the_place_of_a_cache(no_home, capsys):
    folders = [cache.cache_folder(name) for name in ("numba", "wmt14", "numba")]
    private = no_home / f"keras_attention-{os.getuid()}"
    assert folders == [private / name for name in ("numba", "wmt14", "numba")]
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    said = capsys.readouterr().err
    assert said.count(str(private)) == 1 and "set KERAS_ATTENTION_CACHE" in said
    cache._instead_of.cache_clear()  # another process
    assert cache.cache_folder("numba") == private / "numba"


@pytest.mark.parametrize("kind", ["open to others", "a link", "somebody's", "a file"])
def test_what_others_can_write_to_is_not_trusted(no_home, kind, monkeypatch):
    private = no_home / f"keras_attention-{os.getuid()}"
    if kind == "a link":
        (no_home / "theirs").mkdir(mode=0o700)
        private.symlink_to(no_home / "theirs")
    elif kind == "a file":
        private.write_text("")
    else:
        private.mkdir(mode=0o700)
        private.chmod(0o777 if kind == "open to others" else 0o700)
    if kind == "somebody's":
        own = os.getuid()
        monkeypatch.setattr(cache.os, "getuid", lambda: own + 1)
        private.rename(no_home / f"keras_attention-{own + 1}")
    folder = cache.cache_folder("numba").parent
    assert folder.parent == no_home and folder.name not in (private.name, "theirs")
    assert not folder.name.endswith(f"-{os.getuid()}")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert cache.cache_folder("wmt14").parent == folder


def test_no_home_at_all(no_home, monkeypatch):
    """The user of a container often is only a number."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    assert cache.cache_folder("plans").parent == no_home / f"keras_attention-{os.getuid()}"
    monkeypatch.delitem(__import__("sys").modules, "keras")
    check_backend()


def test_what_is_there_is_used_though_nothing_can_be_added(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    (tmp_path / "wmt14").mkdir()
    monkeypatch.setattr(cache, "_problem_of", lambda folder: "Read-only file system")
    assert cache.cache_folder("multi30k") != tmp_path / "multi30k"
    (tmp_path / "wmt14/train.de").write_text("Hallo")
    assert cache.cache_folder("wmt14") == tmp_path / "wmt14"
