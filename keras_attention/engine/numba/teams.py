"""How many teams of how many threads search a batch: what took the least time, found by trying.

It depends on the processor how long threads that work together wait for each other's numbers, and for how
many rows a team must read all weights. The translations do not depend on it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator

# Of each size the last so many times count, and each so many searches a size that was slower is tried again.
TRIES, AGAIN = 5, 50

Size = tuple[int, int]


class TeamSizes:
    """The size of searches that are alike: of so many sentences, by one engine.

    Args:
        first: Teams and threads of each to begin with.
        most: Largest number of teams, and of all their threads.
    """

    def __init__(self, first: Size, most: tuple[int, int]):
        self._best = first
        self._most = most
        self._seconds: dict[Size, deque[float]] = {first: deque(maxlen=TRIES)}
        self._searches = 0

    def next(self) -> Size:
        """Teams and threads for the next search: the best ones, after those near it have been tried."""
        self._searches += 1
        near = list(self._near(*self._best))
        for size in (self._best, *near):
            if len(self._seconds.get(size, ())) < TRIES:
                return size
        turn, rest = divmod(self._searches, AGAIN)
        return near[turn % len(near)] if near and not rest else self._best

    def took(self, size: Size, seconds: float) -> None:
        """Enters the time of a search by its size, per unit of work."""
        self._seconds.setdefault(size, deque(maxlen=TRIES)).append(seconds)
        known = {
            size: statistics.median(times)
            for size, times in self._seconds.items()
            if len(times) == TRIES
        }
        if known:
            self._best = min(known, key=known.__getitem__)

    def _near(self, teams: int, threads: int) -> Iterator[Size]:
        """Half or twice the threads, or teams with twice or half the threads each."""
        sizes = (
            (teams, threads // 2),
            (teams, threads * 2),
            (teams * 2, max(1, threads // 2)),
            (teams // 2, threads * 2),
        )
        most_teams, most_threads = self._most
        for size in dict.fromkeys(sizes):
            if 0 < size[0] <= most_teams and 0 < size[0] * size[1] <= most_threads:
                yield size
