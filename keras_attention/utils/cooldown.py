"""Where the cool-down of a learning rate begins: the last share of a budget, in which the rate falls to 0."""

from __future__ import annotations


def cooldown_start(steps: int, share: float) -> int:
    """Return after which update of a budget the cool-down, its last share, begins."""
    return max(1, steps - round(share * steps))


def finishing_steps(updates: int, share: float) -> int:
    """Return the budget whose cool-down, a share of at most a half, begins after this many updates.

    A run that cools down from there is a run that had this budget from the start.

    >>> finishing_steps(506, 0.2), finishing_steps(506, 0.0)
    (632, 506)
    """
    steps = max(1, int(updates / (1 - share)) - 2)
    while cooldown_start(steps, share) < updates:
        steps += 1
    return steps
