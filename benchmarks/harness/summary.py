"""Medians, ranges and ratios of measurements in turns."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure and how far it scattered.

    Attributes:
        median: Of all samples; for a ratio, the ratio of the medians.
        least: The smallest sample, or ratio of a round.
        most: The largest.
    """

    median: float
    least: float
    most: float


def summarize(rounds: Sequence[Sequence[float]]) -> Spread:
    """Median and range of the samples of all rounds.

    Example:

    >>> summarize([[3.0, 1.0], [2.0, 9.0, 2.5]])
    Spread(median=2.5, least=1.0, most=9.0)
    """
    samples = [sample for samples in rounds for sample in samples]
    if not samples:
        raise ValueError("There are no samples to summarize.")
    return Spread(statistics.median(samples), min(samples), max(samples))


def ratio(rounds: Sequence[Sequence[float]], of: Sequence[Sequence[float]]) -> Spread:
    """How many times as long `rounds` took as `of`; above 1, `of` is the faster.

    The figure is the ratio of the medians of all samples. Its spread is that of the ratios of the
    medians of each round: two subjects of one round met the same state of the machine.

    Args:
        rounds: Seconds, a sequence for each round.
        of: Seconds of the subject compared with, over the same rounds.

    Example:

    >>> ratio([[4.0], [9.0]], of=[[2.0], [3.0]])
    Spread(median=2.6, least=2.0, most=3.0)
    """
    if len(rounds) != len(of):
        raise ValueError(
            f"Ratios are of the same rounds. Received: {len(rounds)} and {len(of)} rounds"
        )
    each = [
        statistics.median(one) / statistics.median(other)
        for one, other in zip(rounds, of, strict=True)
    ]
    return Spread(summarize(rounds).median / summarize(of).median, min(each), max(each))
