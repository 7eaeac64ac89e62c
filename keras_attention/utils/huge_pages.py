"""Large memory in pages of 2 MiB, where Linux gives them to those who ask.

Of small pages a processor, above all a virtual one, cannot remember where they all are: what an update
reads and writes are gigabytes.
"""

import ctypes
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

# Of Linux' mman.h.
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
PAGE = 2**21
# Mappings from this size on are worth it.
LARGE = 2**24
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# In the beginning frameworks take more memory with each update.
LAST_TO_TAKE_MORE = 2


def are_for_the_asking() -> bool:
    """Whether who asks for huge pages gets them, and who does not, does not."""
    return SETTING.is_file() and "[madvise]" in SETTING.read_text()


def ask_for(first: int, end: int, is_used: bool = False) -> None:
    """Asks for huge pages for addresses; memory that is used already becomes such at once, if it can.

    Linux may have no page to give: then all stays as it was.
    """
    first, end = first + -first % PAGE, end - end % PAGE
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if first < end:
        madvise(first, end - first, MADV_HUGEPAGE)
        if is_used:
            madvise(first, end - first, MADV_COLLAPSE)


def large_mappings() -> Iterator[tuple[int, int]]:
    """Begin and end of this process' large memory of its own."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.fullmatch(r"(\w+)-(\w+) rw-p \w+ 00:00 0 *(\[heap\])?", line)
        if found:
            first, end = (int(found[place], 16) for place in (1, 2))
            if end - first >= LARGE:
                yield first, end


class HugePages(keras.callbacks.Callback):
    """Turns what training uses after its first updates into huge pages.

    TensorFlow takes its memory in few large pieces, which it never gives back, and has no setting for
    this. An update of the base model on two CPUs took a tenth less.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == LAST_TO_TAKE_MORE and are_for_the_asking():
            for first, end in large_mappings():
                ask_for(first, end, is_used=True)


def with_huge_pages(callbacks: Any) -> Any:
    """The callbacks of `fit`, and `HugePages` where it helps: with TensorFlow on CPUs of Linux.

    Args:
        callbacks: What `fit` takes: None, a callback, a list of them, or a `CallbackList`.
    """
    if keras.backend.backend() != "tensorflow" or platform.system() != "Linux":
        return callbacks
    if isinstance(callbacks, keras.callbacks.CallbackList) or "GLIBC_TUNABLES" in os.environ:
        return callbacks
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("TPU"):
        return callbacks
    return [*keras.tree.flatten(callbacks if callbacks is not None else []), HugePages()]
