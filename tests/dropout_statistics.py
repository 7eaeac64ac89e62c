"""What independent draws of dropout look like, within what chance allows."""

import numpy as np

DEVIATIONS = 4.8


def assert_share_is_kept(keep, rate):
    """Of a boolean array (A, B, C) the share `1 - rate` is kept, along all axes, too."""
    for axes in ((0, 1, 2), (0, 1), (0, 2), (1, 2), 2):
        sums = np.asarray(keep.sum(axis=axes))
        number = keep.size / sums.size
        # Anscombe's angles have one variance and light tails, where shares of a few numbers are skewed.
        angles = np.arcsin(np.sqrt((sums + 0.375) / (number + 0.75)))
        away = 2 * np.sqrt(number + 0.5) * np.abs(angles - np.arcsin(np.sqrt(1 - rate)))
        assert away.max() < DEVIATIONS, axes


def assert_independent(draw, others, rate, distances):
    """Positions of a flat boolean array do not know of each other, nor of those of other draws.

    Args:
        draw: Which of many numbers a dropout keeps.
        others: The same for another step or seed, by name.
        rate: The dropout rate.
        distances: Between positions that are compared.
    """
    pairs = {name: (draw, other) for name, other in others.items()}
    for distance in distances:
        for name, other in {"itself": draw, **others}.items():
            pairs[f"{name}, {distance} apart"] = (draw[distance:], other[:-distance])
    for name, (one, another) in pairs.items():
        share = (one != another).mean()  # 2 rate (1 - rate) where independent
        expected = 2 * rate * (1 - rate)
        deviation = np.sqrt(expected * (1 - expected) / one.size)
        assert abs(share - expected) < DEVIATIONS * deviation, name
