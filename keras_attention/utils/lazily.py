"""Lazy imports: of a package's own names, and of packages that not everybody has."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def imported_lazily(
    package: str, places: Mapping[str, tuple[str, ...]], modules_too: bool = False
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package, by the names that a module defines.

    With `modules_too`, the modules themselves are attributes of the package as well. They are not in
    `__all__`, so that `import *` does not hide a user's own `layers` or `models`.
    """
    place_of = {name: module for module, names in places.items() for name in names}

    def get(name: str) -> Any:
        if name in place_of:
            return getattr(importlib.import_module(f"{package}.{place_of[name]}"), name)
        if modules_too and name in places:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *place_of, *(places if modules_too else ())})

    return get, names, sorted(place_of)


def needed(module: str, message: str) -> Any:
    """Import a module of another package; raise an ImportError with this message if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(message) from error


def check_event_files() -> None:
    """Raise an ImportError if what writes TensorBoard's event files is missing: before a training starts."""
    for module in ("tensorboard", "google_crc32c"):
        if importlib.util.find_spec(module) is None:
            raise ImportError(
                "TensorBoard's event files need two packages: pip install tensorboard google-crc32c"
            )


def check_moses() -> None:
    """Raise an ImportError if sacremoses is missing: before a training, not after it."""
    if importlib.util.find_spec("sacremoses") is None:
        raise ImportError(
            "The report has the paper's tokenised BLEU, which needs sacremoses: pip install sacremoses"
        )
