"""Exponents of growth, with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SAMPLES = 1000


class Exponent(NamedTuple):
    """The slope in a log-log plot.

    Attributes:
        value: The exponent.
        low, high: Its 95 % interval.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def fitted_exponent(
    sizes: Sequence[float], times: Sequence[Sequence[float]], seed: int = 0
) -> Exponent:
    """The exponent c of `time = a size^c`, robust against single bad times.

    The exponent is the median of the slopes between all pairs of points (Theil-Sen); each point is the
    median of its times. The interval comes from 1,000 bootstrap samples of the times of every point.

    Args:
        sizes: Sizes, at least two.
        times: The measured times of each size.
        seed: Seed of the bootstrap.

    Example:

    >>> round(fitted_exponent([1, 2, 4], [[3.0], [12.0], [48.0]]).value, 6)
    2.0
    """
    if len(sizes) != len(times) or len(set(sizes)) < 2 or not all(len(t) for t in times):
        raise ValueError(
            "An exponent needs two different sizes or more, and times of each. Received: "
            f"sizes={list(sizes)!r} and {len(times)} lists of times"
        )
    generator = np.random.default_rng(seed)
    logs = np.log(np.asarray(sizes, float))

    def slope(medians: Sequence[float]) -> float:
        heights = np.log(medians)
        pairs = itertools.combinations(range(len(logs)), 2)
        return float(
            np.median(
                [
                    (heights[j] - heights[i]) / (logs[j] - logs[i])
                    for i, j in pairs
                    if logs[i] != logs[j]
                ]
            )
        )

    samples = [
        slope([np.median(generator.choice(np.asarray(t), len(t))) for t in times])
        for _ in range(SAMPLES)
    ]
    low, high = np.quantile(samples, (0.025, 0.975))
    return Exponent(slope([float(np.median(t)) for t in times]), float(low), float(high))
