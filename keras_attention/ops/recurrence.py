"""The linear recurrence of a cell, computed for all positions at once."""

from typing import Any

from keras import ops


def linear_recurrence(decay: Any, inputs: Any) -> Any:
    """Return `c_t = decay_t c_(t-1) + inputs_t` for all t, with `c_0 = 0`, by an associative scan.

    All are (B, T, D). In step k of log2(T), each position takes over the sum of the 2^k positions before it
    (Hillis and Steele 1986). Decays are from 0 to 1 and can only shrink what they multiply, so nothing
    overflows. Neither forward nor backward keeps more than the two arguments: the gradient is the same
    recurrence, backwards.

    `keras.ops.associative_scan` is not used: in Keras 3.15 it makes float32 of float64 on PyTorch, and on
    TensorFlow it needs to know T when a graph is traced.
    """
    return _recurrence(ops.convert_to_tensor(decay), ops.convert_to_tensor(inputs))


@ops.custom_gradient
def _recurrence(decay: Any, inputs: Any) -> Any:
    def gradient(*args: Any, upstream: Any = None) -> tuple[Any, Any]:
        upstream = (
            args[0] if upstream is None else upstream
        )  # PyTorch's has the arguments before it.
        following = _shifted(decay, -1, 0.0)
        reached = ops.flip(_scan(ops.flip(following, 1), ops.flip(upstream, 1)), 1)
        return reached * _shifted(_scan(decay, inputs), 1, 0.0), reached

    return _scan(decay, inputs), gradient


def _scan(decay: Any, sums: Any) -> Any:
    length = ops.shape(sums)[1]

    def doubled(step: Any, decay: Any, sums: Any) -> tuple[Any, Any, Any]:
        sums = sums + decay * _shifted(sums, step, 0.0)
        return step * 2, decay * _shifted(decay, step, 1.0), sums

    if not isinstance(length, int):  # In a graph that is traced for any length.
        one = ops.convert_to_tensor(1, "int32")
        return ops.while_loop(lambda step, *_: step < length, doubled, (one, decay, sums))[2]
    step = 1
    while step < length:
        step, decay, sums = doubled(step, decay, sums)
    return sums


def _shifted(tensor: Any, step: Any, filler: float) -> Any:
    """Return `tensor[:, t - step]` for each t, and the filler where there is no such position."""
    length = ops.shape(tensor)[1]
    edge = ops.full_like(tensor[:, :1], filler)
    if isinstance(length, int):
        edge = ops.repeat(edge, min(abs(step), length), axis=1)
        parts = [edge, tensor[:, :-step]] if step > 0 else [tensor[:, -step:], edge]
        return ops.concatenate(parts, axis=1)
    places = ops.arange(length, dtype="int32") - step
    is_there = ops.logical_and(places >= 0, places < length)[None, :, None]
    return ops.where(is_there, ops.take(tensor, ops.clip(places, 0, length - 1), axis=1), edge)
