"""What compiled code leaves on the disk for later processes."""

import shutil

import numpy as np
import pytest

pytest.importorskip("numba")

import numba

from keras_attention.engine.numba.llvm import njit_cached


def double(number):
    return number + number


def test_two_processes_that_compile_at_once_keep_both_results(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    first = njit_cached()(double)
    assert first(np.float64(1.25)) == 2.5
    (index,) = tmp_path.rglob("*.nbi")
    shutil.move(index, tmp_path / "index")
    # Another process, that began before the first one was done: it saw nothing of it.
    assert njit_cached()(double)(np.int64(3)) == 6
    assert index.exists()
    shutil.move(tmp_path / "index", index)
    third = njit_cached()(double)
    assert third(np.float64(1.25)) == 2.5
    assert list(third.stats.cache_hits.values()) == [1]
