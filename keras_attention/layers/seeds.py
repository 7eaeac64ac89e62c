"""A seed for each part of a layer, derived from the layer's own seed.

Two kernels of the same shape with the same integer seed start with the same numbers, and two dropouts
with the same seed drop the same units. So every part needs its own seed.
"""

import zlib
from typing import Any


def part_seed(seed: int | None, part: str) -> int | None:
    """Return the seed of a part, a pure function of `seed` and `part`; None stays None."""
    if seed is None:
        return None
    return zlib.crc32(f"{seed}/{part}".encode()) & 0x7FFFFFFF  # Fits a signed 32-bit integer.


def part_initializer(initializer: Any, part: str) -> Any:
    """Return a copy of a Keras initializer; an integer seed in it is replaced by the part's seed."""
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] = part_seed(config["seed"], part)
    return initializer.__class__.from_config(config)
