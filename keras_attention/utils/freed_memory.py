"""What becomes of memory that an update has freed, and the next one wants again."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

from keras_attention.utils import huge_pages

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 2**30
MOST_ADDRESSES = 2**36
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Keep what was freed for what comes next, instead of giving it back to the system.

    PyTorch takes the memory of its tensors on a CPU from the C library, which would map anew, and
    have filled with zeros page by page, what large tensors of the update before had just given back:
    30,000 page faults in an update of a small model, a twentieth of its time. The peak stays as it
    was; after it, the process stays as large. Arrays above 1 GiB are given back as ever.

    Where Linux gives huge pages to those who ask for them, this memory is asked for in these.

    Returns:
        False where there is no glibc, or the user has set its allocator by an environment variable
        of his own; nothing was done then.

    Example:

    >>> keep_freed_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in SETTINGS):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    kept = library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
    if not (kept and library.mallopt(M_TRIM_THRESHOLD, -1)):
        return False
    if huge_pages.are_for_the_asking() and _are_addresses_free():
        _ask_for_huge_pages(library)
    return True


def _are_addresses_free() -> bool:
    """Whether addresses without memory count against no limit."""
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return limits == [resource.RLIM_INFINITY] * 2 and OVERCOMMIT.read_text().strip() in ("0", "1")


def _ask_for_huge_pages(library: Any) -> None:
    """For the addresses of the heap's next memory, as much as the machine has, 64 GiB at most.

    A page becomes memory when it is written to; the heap keeps addresses that were freed.
    """
    library.sbrk.restype = library.malloc.restype = ctypes.c_void_p
    library.sbrk.argtypes, library.malloc.argtypes = [ctypes.c_ssize_t], [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    start = library.sbrk(0)
    memory = min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), MOST_ADDRESSES)
    size = LARGEST_KEPT // 2
    taken = [library.malloc(size) for _ in range(memory // size)]
    end = library.sbrk(0)
    for address in taken:
        library.free(address)
    huge_pages.ask_for(start, end)
