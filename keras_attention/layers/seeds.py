"""Seeds of the parts of a layer, each derived from the layer's own seed.

Two kernels of one shape with one integer seed start with the same numbers, and two dropouts with one
seed drop the same units: every part needs a seed of its own.
"""

import zlib
from typing import Any


def part_seed(seed: int | None, part: str) -> int | None:
    """The seed of a part, always the same for the same seed and name; None stays None.

    Example:

    >>> part_seed(1, "query") == part_seed(1, "query") != part_seed(1, "key")
    True
    """
    if seed is None:
        return None
    return zlib.crc32(f"{seed}/{part}".encode()) & 0x7FFFFFFF  # Fits a signed 32-bit integer.


def part_initializer(initializer: Any, part: str) -> Any:
    """A copy of a Keras initializer for one part; if it has an integer seed, with the part's seed."""
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = part_seed(config["seed"], part)
    return initializer.__class__.from_config(config)
