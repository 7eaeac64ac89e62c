"""Large memory in huge pages, in processes of their own: a heap keeps what it was once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_attention.utils import huge_pages

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not huge_pages.are_for_the_asking(),
    reason="huge pages are for none here, or for all",
)

KEPT = """
import numpy as np
from keras_attention.utils.freed_memory import keep_freed_memory
from tests.utils.test_memory import mebibytes_in_huge_pages

print(keep_freed_memory())
arrays = [np.ones(2**18) for _ in range(64)]  # of 2 MiB; for larger ones NumPy asks by itself
print(mebibytes_in_huge_pages())
"""
USED = """
import mmap
from keras_attention.utils import huge_pages
from tests.utils.test_memory import mebibytes_in_huge_pages

memory = mmap.mmap(-1, 2**27, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, 2**27, 4096):
    memory[place] = 1
before = mebibytes_in_huge_pages()
huge_pages.HugePages().on_train_batch_end(1)
assert mebibytes_in_huge_pages() < before + 32
huge_pages.HugePages().on_train_batch_end(2)
print(before, mebibytes_in_huge_pages(), all(memory[place] == 1 for place in range(0, 2**27, 4096)))
"""


def mebibytes_in_huge_pages():
    found = re.findall(r"AnonHugePages: +([0-9]+) kB", Path("/proc/self/smaps").read_text())
    return sum(map(int, found)) / 1024


def printed(program, before=None):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        preexec_fn=before,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


@pytest.mark.parametrize("limit", [None, 2**36])
def test_the_heap(limit):
    """But where addresses are counted none are taken that are not needed."""
    import resource

    def count_addresses():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    is_kept, huge = printed(KEPT, count_addresses)
    if is_kept == "False":
        pytest.skip("another allocator than glibc's")
    assert float(huge) < 32 if limit else float(huge) > 96


def test_what_is_used_already():
    before, after, is_the_same = printed(USED)
    assert float(after) - float(before) > 96 and is_the_same == "True"


def test_callbacks_of_fit():
    """The user's stay, in their order, and come first."""
    mine, other = keras.callbacks.History(), keras.callbacks.History()
    for given, wanted in ((None, []), (mine, [mine]), ([mine, other], [mine, other])):
        got = huge_pages.with_huge_pages(given)
        if keras.backend.backend() != "tensorflow":
            assert got is given
        else:
            assert got[:-1] == wanted and isinstance(got[-1], huge_pages.HugePages)
    whole = keras.callbacks.CallbackList([mine])
    assert huge_pages.with_huge_pages(whole) is whole
