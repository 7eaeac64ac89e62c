"""What compiled code leaves on the disk for later processes."""

import shutil

import numpy as np
import pytest

pytest.importorskip("numba")

import numba

from keras_attention.engine.numba.compiling import compiled, is_on_disk

pytestmark = pytest.mark.backends("tensorflow")


def double(number):
    return number + number


def test_two_processes_that_compile_at_once_keep_both_results(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def in_a_new_process(number):
        compiled.cache_clear()
        return compiled(double, (numba.typeof(number),))

    signature = (numba.typeof(np.float64(1.25)),)
    assert not is_on_disk(double, signature)
    first = in_a_new_process(np.float64(1.25))
    assert is_on_disk(double, signature) and not is_on_disk(double, (numba.typeof(np.int64(3)),))
    assert first(np.float64(1.25)) == 2.5
    (index,) = tmp_path.rglob("*.nbi")
    shutil.move(index, tmp_path / "index")
    # Another process, that began before the first one was done: it saw nothing of it.
    assert in_a_new_process(np.int64(3))(np.int64(3)) == 6
    shutil.move(tmp_path / "index", index)
    third = in_a_new_process(np.float64(1.25))
    assert third(np.float64(1.25)) == 2.5
    assert list(third.stats.cache_hits.values()) == [1]


def test_a_folder_that_cannot_be_written_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file"))
    compiled.cache_clear()
    assert compiled(double, (numba.float64,))(2.5) == 5.0
    assert not is_on_disk(double, (numba.float64,))
