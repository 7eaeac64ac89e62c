"""Exponents of growth and means over seeds, with 95 % intervals."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SAMPLES = 1000
# 97.5 % points of Student's t for 1, 2, ... degrees of freedom.
T_POINTS = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
NORMAL_POINT = 1.95996


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


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean (Student's t); infinite for fewer than two values.

    Example:

    >>> round(half_width([1.0, 2.0, 4.0]), 3)  # 4.303 standard errors
    3.795
    """
    if len(values) < 2:
        return math.inf
    freedom = len(values) - 1
    if freedom <= len(T_POINTS):
        point = T_POINTS[freedom - 1]
    else:  # its series in 1 / freedom
        z = NORMAL_POINT
        point = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        point += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return point * statistics.stdev(values) / math.sqrt(len(values))
