"""How a forward pass is run a second time with the random numbers of the first.

A layer that is computed again in the backward pass must drop the same units. Everything that is random
draws from a `keras.random.SeedGenerator`, by its `next`. While a replay is on, `next` draws from a
state that was kept, and the generator's own state stays as it is.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops


class Replay:
    """Draws what a seed generator would draw from a state (2,) on, and counts the `draws`."""

    def __init__(self, state: Any):
        self.state = state
        self.draws = 0

    def next(self, ordered: bool = True) -> Any:
        """Return the next seed, as `SeedGenerator.next(ordered=True)` counts them."""
        ahead = ops.convert_to_tensor([0, self.draws], dtype=self.state.dtype)
        self.draws += 1
        return ops.add(self.state, ahead)


@contextlib.contextmanager
def replaying(
    generators: Sequence[keras.random.SeedGenerator], states: Sequence[Any]
) -> Iterator[list[Replay]]:
    """Within this context the generators draw from the given states on."""
    replays = [Replay(state) for state in states]
    for generator, replay in zip(generators, replays, strict=True):
        generator.next = replay.next  # On the object: Keras' own layers draw from it, too.
    try:
        yield replays
    finally:
        for generator in generators:
            del generator.next


def is_replaying(generator: keras.random.SeedGenerator) -> bool:
    """Whether `generator.next` draws from a kept state: who knows the generator's state must ask."""
    return isinstance(getattr(generator.next, "__self__", None), Replay)
