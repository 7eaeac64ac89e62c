"""Kept memory: in a process of its own, because it cannot be undone."""

import platform
import subprocess
import sys

import pytest

from keras_attention.kernels import allocator

FAULTS = """
import resource, runpy, sys
import numpy as np
if sys.argv[1] == "keep":
    assert runpy.run_path(sys.argv[2])["keep_freed_memory"]()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def updates(count):
    for _ in range(count):
        np.ones(2**26, "uint8")
updates(3)
before = faults()
updates(5)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_freed_pages_are_found_again():
    arguments = [sys.executable, "-c", FAULTS]
    # Above 32 MiB glibc maps every array; NumPy asks for huge pages, of which there may be any number.
    environment = {"NUMPY_MADVISE_HUGEPAGE": "0"}
    given_back, kept = (
        int(subprocess.check_output([*arguments, how, allocator.__file__], env=environment))
        for how in ("not", "keep")
    )
    assert given_back > 5 * 2**26 / 65536 and kept < given_back / 10


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert allocator.keep_freed_memory() is False
