"""The upper limit: large matrix products on one framework, as another subject of a run."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.subject import Subject


class Gemm(Subject):
    """Products of two square matrices; a sample is about `sample_seconds` of them.

    Args:
        framework: `"numpy"`, `"torch"`, `"tensorflow"` (a graph without XLA) or `"jax"`.
        dtype: `"float32"` or `"bfloat16"` (not on NumPy).
        size: Rows and columns.
        sample_seconds: About how long one sample takes.
    """

    def __init__(
        self,
        framework: str,
        dtype: str = "float32",
        size: int = 2048,
        sample_seconds: float = 0.3,
    ) -> None:
        self.module = importlib.import_module("jax" if framework == "jax" else framework)
        self.framework, self.dtype, self.size = framework, dtype, size
        self.sample_seconds = sample_seconds

    def prepare(self) -> dict[str, Any]:
        random = np.random.default_rng(0)
        # Divided by the root of the size, a product is of order 1.
        a, b = random.standard_normal((2, self.size, self.size), "float32") / np.sqrt(
            np.float32(self.size)
        )
        self._multiply: Callable[[int], None] = getattr(self, f"_{self.framework}")(a, b)
        self._multiply(2)
        started = time.perf_counter()
        self._multiply(1)
        seconds = time.perf_counter() - started
        self._products = max(1, round(self.sample_seconds / max(seconds, 1e-6)))
        flop = 2 * self.size**3 * self._products
        return {"work": {"flop": flop}, "version": self.module.__version__, "size": self.size}

    def run(self, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            started = time.perf_counter()
            self._multiply(self._products)
            seconds.append(time.perf_counter() - started)
        return seconds

    def _numpy(self, a: np.ndarray, b: np.ndarray) -> Callable[[int], None]:
        if self.dtype != "float32":
            raise ValueError(f"NumPy has no fast product of this dtype. Received: {self.dtype!r}")
        out = np.empty_like(a)

        def multiply(count: int) -> None:
            for _ in range(count):
                np.matmul(a, b, out=out)

        return multiply

    def _torch(self, a: np.ndarray, b: np.ndarray) -> Callable[[int], None]:
        torch = self.module
        device = "cuda" if torch.cuda.is_available() else "cpu"
        x, y = (torch.from_numpy(m).to(device, getattr(torch, self.dtype)) for m in (a, b))

        def multiply(count: int) -> None:
            with torch.inference_mode():
                for _ in range(count):
                    product = x @ y
                product[0, 0].item()  # Waits.

        return multiply

    def _tensorflow(self, a: np.ndarray, b: np.ndarray) -> Callable[[int], None]:
        tf = self.module
        x, y = (tf.cast(tf.constant(m), self.dtype) for m in (a, b))
        # Of arguments, not of constants: those are folded away.
        product = tf.function(tf.matmul, jit_compile=False)

        def multiply(count: int) -> None:
            for _ in range(count):
                value = product(x, y)
            value[0, 0].numpy()  # Waits.

        return multiply

    def _jax(self, a: np.ndarray, b: np.ndarray) -> Callable[[int], None]:
        jax = self.module
        x, y = (jax.numpy.asarray(m, self.dtype) for m in (a, b))
        product = jax.jit(jax.numpy.matmul)

        def multiply(count: int) -> None:
            for _ in range(count):
                value = product(x, y)
            value.block_until_ready()

        return multiply
