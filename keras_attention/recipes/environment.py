"""What a result depends on besides its settings: libraries and the machine."""

import os
import platform

from keras_attention.utils.backend import running_backend
from keras_attention.utils.versions import versions


def environment() -> dict[str, str]:
    """Versions of this package, of Python and of the libraries that a result depends on, and the machine."""
    return {
        "python": platform.python_version(),
        "backend": running_backend(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **versions(),
    }
