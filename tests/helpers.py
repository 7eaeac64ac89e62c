"""What tests of several rooms share."""

from pathlib import Path

import keras
import numpy as np
from keras import ops

# For `compile` where the graph is not what a test is about: TensorFlow takes seconds to trace and compile
# what it computes step by step in a few tenths. (JAX would compile each operation, PyTorch nothing.)
STEP_BY_STEP = {"run_eagerly": keras.backend.backend() == "tensorflow"}


def contents(folder, folders=False):
    """By its path below a folder each file's bytes, and None for a folder if they are asked for."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
        if folders or path.is_file()
    }


def changed_copies(content, number, front=None, seed=1):
    """Copies of a file's bytes of which four bits are turned, some of them also cut off.

    Of every third only the first `front` bytes are touched, where the sizes and the names are.
    """
    random = np.random.default_rng(seed)
    for count in range(number):
        damaged = bytearray(content)
        for place in random.integers(0, len(content) if count % 3 else front or len(content), 4):
            damaged[place] ^= 1 << random.integers(8)
        yield bytes(damaged[: random.integers(len(damaged))] if count % 4 == 0 else damaged)


def numpy(tensor):
    """A tensor of any backend and float dtype as a float32 NumPy array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def assert_each(found, expected, rtol=0.0, atol=0.0):
    """Arrays and as many others: each pair is equal, or close."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
