"""Masks for dropout on PyTorch, from random bits that cost a tenth of PyTorch's own on a CPU."""

import contextlib
import functools
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from keras_attention.ops.backends.torch_known import is_known, tensor_of
from keras_attention.ops.replay import is_replaying

ONE_IN_BFLOAT16 = 0x3F80  # its bits
# First outputs of SFC64 that are thrown away: then each bit of the seed has changed all others.
WARM_UP = 18
# What a seed generator's state was when it was last read or advanced here: (tensor, version, numbers).
_KNOWN: Any = weakref.WeakKeyDictionary()


def keep_mask(like: Any, rate: float, seed: Any) -> Any:
    """Draw which elements of a tensor dropout keeps, from a `SeedGenerator`, which is advanced by one.

    On a CPU each element takes 16 of NumPy's random bits, so its rate is exact to 2^-17. A mask of
    bytes costs a quarter of one of floats to keep, and half of one of booleans to multiply with; one of
    bfloat16 is not cast when it meets bfloat16. The same seed gives the same mask on the same kind of device.
    """
    if _own.given is not None:
        return next(_own.given)
    if _own.draws is not None:
        _own.draws.append(Draw(like.shape, like.dtype, like.device, rate, seed))
    if like.device.type == "meta":  # Keras asks for shapes: nothing is drawn.
        return torch.empty(like.shape, dtype=torch.uint8, device="meta")
    first, second = next_seed(seed)
    # Processes that train together drop other units; the first one drops those of a single process.
    process = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    if like.device.type == "cpu":
        bits = _random_bits(first, second, process, like.numel())
        keep = np.greater_equal(bits, min(round(rate * 2**16), 2**16 - 1))
        if like.dtype == torch.bfloat16:
            ones = np.multiply(keep, ONE_IN_BFLOAT16, dtype=np.int16)
            return torch.from_numpy(ones).view(like.dtype).view(like.shape)
        return torch.from_numpy(keep.view(np.uint8)).view(like.shape)
    generator = torch.Generator(like.device).manual_seed(
        (first << 31 ^ second) + process * 0x9E3779B97F4A7C15 & (1 << 63) - 1
    )
    keep = torch.empty(like.shape, dtype=torch.uint8, device=like.device)
    return keep.bernoulli_(1.0 - rate, generator=generator)


class Draw(NamedTuple):
    """What `keep_mask` was asked for. It can be asked again, without the tensor itself."""

    shape: Any
    dtype: Any
    device: Any
    rate: float
    seed: Any

    def numel(self) -> int:
        """Return the number of elements."""
        return self.shape.numel()

    def again(self) -> Any:
        """Draw the next mask of this kind."""
        return keep_mask(self, self.rate, self.seed)


class OfThread(threading.local):
    """Each thread's generator, which gets a new seed at each use, and what is made of its masks.

    Attributes:
        draws: Where `keep_mask` writes down what it draws, or None.
        given: The masks that `keep_mask` returns in place of new ones, or None.
    """

    draws: list[Draw] | None = None
    given: Iterator[Any] | None = None

    def __init__(self) -> None:
        self.generator = np.random.SFC64(0)


@contextlib.contextmanager
def noted(draws: list[Draw]) -> Iterator[None]:
    """Within this context `keep_mask` writes down in a list what it draws."""
    _own.draws = draws
    try:
        yield
    finally:
        _own.draws = None


@contextlib.contextmanager
def given(masks: Sequence[Any]) -> Iterator[None]:
    """Within this context `keep_mask` returns these masks in turn: for a program that is traced."""
    _own.given = iter(masks)
    try:
        yield
    finally:
        _own.given = None


def are_given() -> bool:
    """Whether masks are given: whether a program is traced."""
    return _own.given is not None


_own = OfThread()


def _random_bits(first: int, second: int, process: int, count: int) -> Any:
    """Return `count` numbers of 16 random bits. To make a generator takes ten times as long as a new seed."""
    generator = _own.generator
    state: Any = {"state": np.array([first, second, process, 1], np.uint64)}
    generator.state = {"bit_generator": "SFC64", "state": state, "has_uint32": 0, "uinteger": 0}
    numbers = generator.random_raw(WARM_UP - (-count // 4))
    return numbers[WARM_UP:].view(np.uint16)[:count]


def next_seed(seed: Any) -> tuple[int, int]:
    """`seed.next()` as two integers, without waiting for the device that holds the state.

    The state is advanced there as ever, but the numbers in it are known here, as long as nobody else
    has written to it: PyTorch counts the writes to a tensor.
    """
    if is_replaying(seed):
        return _numbers(seed.next())
    state = tensor_of(seed.state)
    tensor, version, numbers = _KNOWN.get(seed, (None, None, None))
    if tensor is not state or version != state._version:
        numbers = _numbers(state)
    first, second = numbers
    if is_known(seed.state):
        state.add_(_one(state.device, state.dtype))
    else:
        # A `keras.StatelessScope` keeps this assignment to itself: then `state` is another tensor next time.
        seed.state.assign(state + _one(state.device, state.dtype))
        state = seed.state.value
    _KNOWN[seed] = (state, state._version, (first, second + 1))
    return first, second


@functools.cache
def _one(device: Any, dtype: Any) -> Any:
    """Return what is added to a state by a draw."""
    return torch.tensor([0, 1], dtype=dtype, device=device)


def _numbers(state: Any) -> tuple[int, int]:
    first, second = (number & 0xFFFFFFFF for number in state.tolist())
    return first, second
