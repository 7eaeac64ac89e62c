"""The upper limit: large matrix products, as another subject of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.subject import Subject, timed

SIZE, SAMPLE_SECONDS = 2048, 0.3


class Gemm(Subject):
    """Products of two square matrices on the Keras backend; a sample is about `SAMPLE_SECONDS` of them.

    Args:
        dtype: `"float32"` or `"bfloat16"`.
        size: Rows and columns.
    """

    def __init__(self, dtype: str = "float32", size: int = SIZE) -> None:
        import keras

        self.ops, self.dtype, self.size, self.products = keras.ops, dtype, size, 1

    def prepare(self) -> dict[str, Any]:
        random = np.random.default_rng(0).standard_normal((2, self.size, self.size), "float32")
        # Divided by the root of the size, a product is of order 1.
        self.factors = [self.ops.cast(each / self.size**0.5, self.dtype) for each in random]
        seconds = min(self.run(3))
        self.products = max(1, round(SAMPLE_SECONDS / max(seconds, 1e-6)))
        return {"work": {"flop": 2 * self.size**3 * self.products}, "size": self.size}

    def run(self, count: int) -> list[float]:
        def multiply() -> None:
            for _ in range(self.products):
                product = self.ops.matmul(*self.factors)
            float(self.ops.sum(product[0]))  # Waits for the device.

        return timed(multiply, count)
