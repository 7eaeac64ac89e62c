"""Tuned memory, in separate processes: a heap that is tuned once stays tuned."""

import sys
from unittest import mock

import keras
import pytest

import keras_attention
from keras_attention.callbacks import huge_pages as callback
from keras_attention.utils import memory
from tests.helpers import python

pytestmark = pytest.mark.backends("tensorflow")

needs_huge_pages = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not memory.huge_pages_on_request(),
    reason="huge pages are for none here, or for all",
)

# Memory that is asked for in huge pages from the start, without our help: has Linux any to give?
CONTROL = """
import mmap
control = mmap.mmap(-1, 2**27, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
control.madvise(mmap.MADV_HUGEPAGE)
without = mebibytes_in_huge_pages()
for place in range(0, 2**27, 4096):
    control[place] = 1
print(mebibytes_in_huge_pages() - without)
"""
KEPT = (
    """
import keras_attention_light
import numpy as np
from keras_attention.utils.memory import tune_memory
from tests.utils.huge_pages import mebibytes_in_huge_pages

done = len(tune_memory())
arrays = [np.ones(2**18) for _ in range(64)]  # of 2 MiB; for larger ones NumPy asks by itself
ours = mebibytes_in_huge_pages()
"""
    + CONTROL
    + """
print(done, ours)
"""
)
USED = (
    """
import mmap
import keras_attention_light
from keras_attention.utils.memory import advise_huge_pages
from tests.utils.huge_pages import mebibytes_in_huge_pages

memory = mmap.mmap(-1, 2**27, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, 2**27, 4096):
    memory[place] = 1
before = mebibytes_in_huge_pages()
assert advise_huge_pages()
ours = mebibytes_in_huge_pages()
"""
    + CONTROL
    + """
print(before, ours, all(memory[place] == 1 for place in range(0, 2**27, 4096)))
"""
)
FAULTS = """
import resource
import keras_attention_light
import numpy as np
from keras_attention.utils.memory import tune_memory

print(len(tune_memory()))
for _ in range(3):
    np.ones(2**23)  # 64 MiB: 16,384 pages
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def printed(program, before=None):
    return python("-c", program, preexec_fn=before).stdout.split()


@needs_huge_pages
@pytest.mark.parametrize("limit", [None, 2**36])
def test_the_heap(limit):
    """But where addresses are counted none are taken that are not needed."""
    import resource

    def count_addresses():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    control, done, huge = printed(KEPT, count_addresses)
    if done == "0":
        pytest.skip("another allocator than glibc's")
    assert int(done) == (1 if limit else 2)
    if not limit and float(control) < 96:
        pytest.skip("Linux has no huge pages to give just now")
    assert float(huge) < 32 if limit else float(huge) > 96


@needs_huge_pages
def test_what_is_used_already():
    control, before, after, is_the_same = printed(USED)
    if float(control) < 96:
        pytest.skip("Linux has no huge pages to give just now")
    assert float(after) - float(before) > 96 and is_the_same == "True"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_freed_memory_is_taken_again():
    # A process of its own: what other tests have left in the heap decides where memory is found.
    done, *faults = printed(FAULTS)
    if done == "0":
        pytest.skip("another allocator than glibc's")
    first, again, after = map(int, faults)
    assert again - first < 2000 and after - again < 2000


@pytest.mark.parametrize("name", memory.ALLOCATOR_VARIABLES)
def test_an_allocator_that_the_user_has_set_stays_as_it_is(monkeypatch, name):
    monkeypatch.setenv(name, "1000000")
    assert memory.tune_memory.__wrapped__() == () and not memory.advise_huge_pages()


def test_memory_is_tuned_once_and_says_what_it_did(monkeypatch):
    library = mock.Mock()
    library.mallopt.return_value = 1
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    monkeypatch.setattr(memory, "huge_pages_on_request", lambda: False)
    memory.tune_memory.cache_clear()
    assert not memory.is_memory_tuned()
    try:
        for _ in range(2):
            assert keras_attention.tune_memory() == ("freed memory is kept for reuse",)
        assert memory.is_memory_tuned() and library.mallopt.call_count == 2
    finally:
        memory.tune_memory.cache_clear()


def test_huge_pages_are_asked_for_once_on_tensorflow_and_cpus(monkeypatch):
    asked = []
    monkeypatch.setattr(callback, "advise_huge_pages", lambda: asked.append(1))
    on_update = callback.HugePages().on_train_batch_begin
    for updates_before in range(7):
        on_update(updates_before % 2)
        assert len(asked) == (updates_before >= 3 and keras.backend.backend() == "tensorflow")
