"""How many threads search together: on machines whose times are formulas, and noisy ones."""

import itertools

import numpy as np
import pytest

pytest.importorskip("numba")

from keras_attention.engine.numba.engine import AGAIN, TRIES, TeamSizes


def near_waits(teams, threads):
    """Threads that work together wait longer than they compute."""
    return 12 / teams + 5 * threads


def slow_memory(teams, threads):
    """Teams wait for each other's weights."""
    return 12 / threads + 5 * teams


def both(teams, threads):
    return 12 / (teams * threads) + 0.3 * teams + 0.5 * threads


def searched(sizes, seconds, number):
    taken = []
    for _ in range(number):
        size = sizes.next()
        taken.append(size)
        sizes.took(size, seconds(*size))
    return taken


@pytest.mark.parametrize("seconds", [near_waits, slow_memory, both])
@pytest.mark.parametrize("most", [(1, 1), (1, 2), (2, 2), (8, 8), (3, 12)])
@pytest.mark.parametrize("first", [(1, 1), (1, 2), (3, 4)])
def test_the_fastest_is_found_and_kept(first, most, seconds):
    if first[0] > most[0] or first[0] * first[1] > most[1]:
        pytest.skip("more than there may be")
    taken = searched(TeamSizes(first, most), seconds, AGAIN * 20)
    assert all(teams <= most[0] and teams * threads <= most[1] for teams, threads in taken)
    # Halves and doubles of the first, which are all that is tried.
    powers = [2.0**power for power in range(-4, 5)]
    reachable = [
        (int(first[0] * one), int(first[1] * other))
        for one, other in itertools.product(powers, powers)
        if 1 <= first[0] * one <= most[0] and 1 <= first[1] * other
    ]
    best = min(seconds(*size) for size in reachable if size[0] * size[1] <= most[1])
    usual = taken[-AGAIN // 2 :]
    assert seconds(*max(usual, key=usual.count)) <= best


def test_few_searches_are_spent_on_trying():
    taken = searched(TeamSizes((1, 2), (2, 2)), near_waits, 10 * AGAIN)
    assert taken[0] == (1, 2)
    assert taken.count((2, 1)) > len(taken) - 2 * TRIES - 11


def test_one_slow_search_decides_nothing_and_a_changed_machine_is_noticed():
    sizes = TeamSizes((1, 2), (1, 2))
    random = np.random.default_rng(5)

    def busy(teams, threads):
        """Now and then a search takes ten times as long."""
        return (10 - 4 * threads) * (10 if random.random() < 0.05 else 1)

    taken = searched(sizes, busy, 600)
    assert taken.count((1, 2)) > 500
    taken = searched(sizes, lambda teams, threads: 3 * threads, 20 * AGAIN)
    assert taken[-AGAIN:].count((1, 1)) >= AGAIN - 2
