"""Memory that is freed and taken again at every update, kept instead of given back to the system."""

import ctypes
import platform

# Of glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tells the C library to keep what this process frees, so that the next update finds it there.

    By default glibc maps large arrays one by one and gives them back when they are freed; the system
    then fills every page with zeros again at its first touch: for the base model on TensorFlow some
    40,000 page faults an update. The process stays as large as it was at its peak, and other
    libraries in it are affected too: it is for programs that do nothing but train, and never done on
    import.

    Returns:
        Whether it was done; False where the C library is not glibc (macOS, Windows, musl).

    Example:

    >>> keep_freed_memory() in (True, False)
    True
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _LARGEST))
    done = [library.mallopt(*setting) == 1 for setting in settings]
    return all(done)
