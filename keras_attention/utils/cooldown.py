"""Where the cool-down of a learning rate begins: the last share of a budget, in which the rate falls to 0."""

from __future__ import annotations


def cooldown_start(steps: int, share: float) -> int:
    """Return after which update of a budget the cool-down begins.

    Args:
        steps: All updates of the budget.
        share: The share of them that is the cool-down.

    >>> cooldown_start(2000, 0.2)
    1600
    """
    return max(1, steps - round(share * steps))


def finishing_steps(updates: int, share: float) -> int:
    """Return the budget whose cool-down begins after this many updates, which are done.

    A run that cools down from there is a run that had this budget from the start.

    Args:
        updates: Updates that are done, at least 1.
        share: The share of the budget that is the cool-down, at most a half; 0 for none.

    >>> finishing_steps(506, 0.2), finishing_steps(506, 0.0)
    (632, 506)
    """
    steps = max(1, int(updates / (1 - share)) - 2)
    while cooldown_start(steps, share) < updates:
        steps += 1
    return steps
