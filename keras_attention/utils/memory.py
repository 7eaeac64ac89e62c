"""Memory settings of this process, in the C library and Linux, changed only on request."""

import ctypes
import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# From glibc's malloc.h and Linux' mman.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
HUGE_PAGE_BYTES = 2**21
# Larger arrays are given back to the system when they are freed.
MAX_RETAINED_BYTES = 2**30
MAX_RESERVED_BYTES = 2**36
# Mappings from this size on are worth huge pages.
MIN_MAPPING_BYTES = 2**24
HUGE_PAGE_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
# Environment variables with which users configure the allocator themselves.
ALLOCATOR_VARIABLES = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",  # it writes to all that is reserved
    "GLIBC_TUNABLES",
)


@functools.cache
def tune_memory() -> tuple[str, ...]:
    """Make training and decoding on a CPU faster, by changing how this process allocates memory.

    Call it once, early in your program: it changes settings of the whole process. Importing the package
    and calling `fit` never do. A second call changes nothing. It works on Linux with glibc:

    * Freed memory is kept for the next update. Otherwise the system takes it back and clears it page by
      page before it is used again, which takes a twentieth of an update of a small model on PyTorch.
      The peak memory stays the same, but the process keeps it. Arrays above 1 GiB are still returned to
      the system.
    * If Linux gives huge pages on request, the heap requests them: it reserves addresses for as much
      memory as the machine has, at most 64 GiB. A page becomes memory only when it is written to.

    TensorFlow allocates its memory itself, during the first updates. The callback
    `keras_attention.HugePages` requests huge pages after them; `train_translation` adds it if memory is
    tuned.

    Returns:
        A tuple with a description of each change. It is empty without glibc, or if the user has configured
        the allocator by an environment variable.

    Example:

    >>> done = tune_memory()  # doctest: +SKIP
    >>> print(*done, sep="; ")  # doctest: +SKIP
    freed memory is kept for reuse; the heap takes huge pages
    """
    library = _glibc()
    if library is None or not _retain_freed_memory(library):
        return ()
    done = ["freed memory is kept for reuse"]
    if huge_pages_on_request() and _are_addresses_unlimited():
        _advise_future_heap(library)
        done.append("the heap takes huge pages")
    return tuple(done)


def is_memory_tuned() -> bool:
    """Whether this process has called `tune_memory`."""
    return tune_memory.cache_info().currsize > 0


def advise_huge_pages() -> bool:
    """Move the large memory areas of this process to huge pages; return whether Linux was asked to.

    Gigabytes in small pages have more addresses than a processor can cache, above all a virtual one. With
    huge pages, an update of the base model on TensorFlow and two CPUs took a tenth less time.
    """
    if _glibc() is None or not huge_pages_on_request():
        return False
    for first, end in _large_mappings():
        _advise(first, end, is_used=True)
    return True


def huge_pages_on_request() -> bool:
    """Whether Linux gives huge pages on request, and only then."""
    return HUGE_PAGE_SETTING.is_file() and "[madvise]" in HUGE_PAGE_SETTING.read_text()


def _glibc() -> Any:
    """Return the C library if it is glibc and the user has not configured its allocator, else None."""
    if not sys.platform.startswith("linux"):
        return None
    if any(name in os.environ for name in ALLOCATOR_VARIABLES):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") else None


def _retain_freed_memory(library: Any) -> bool:
    is_kept = library.mallopt(M_MMAP_THRESHOLD, MAX_RETAINED_BYTES)
    return bool(is_kept and library.mallopt(M_TRIM_THRESHOLD, -1))


def _are_addresses_unlimited() -> bool:
    """Whether addresses without memory count against no limit."""
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return limits == [resource.RLIM_INFINITY] * 2 and OVERCOMMIT.read_text().strip() in ("0", "1")


def _advise_future_heap(library: Any) -> None:
    """Request huge pages for the heap's next memory; the heap keeps addresses that are freed."""
    library.sbrk.restype = library.malloc.restype = ctypes.c_void_p
    library.sbrk.argtypes, library.malloc.argtypes = [ctypes.c_ssize_t], [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    start = library.sbrk(0)
    memory = min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), MAX_RESERVED_BYTES)
    size = MAX_RETAINED_BYTES // 2
    taken = [library.malloc(size) for _ in range(memory // size)]
    end = library.sbrk(0)
    for address in taken:
        library.free(address)
    _advise(start, end)


def _advise(first: int, end: int, is_used: bool = False) -> None:
    """Request huge pages for a range of addresses; memory in use is moved to them at once, if possible."""
    first, end = first + -first % HUGE_PAGE_BYTES, end - end % HUGE_PAGE_BYTES
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if first < end:
        madvise(first, end - first, MADV_HUGEPAGE)
        if is_used:
            madvise(first, end - first, MADV_COLLAPSE)


def _large_mappings() -> Iterator[tuple[int, int]]:
    """Yield the start and end of each large area of this process' own memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.fullmatch(r"(\w+)-(\w+) rw-p \w+ 00:00 0 *(\[heap\])?", line)
        if found:
            first, end = (int(found[place], 16) for place in (1, 2))
            if end - first >= MIN_MAPPING_BYTES:
                yield first, end
