"""The choice of a random token, in `keras.ops`. Numba's engine has it in `engine/numba/choice.py`.

Shape letters: R rows, V vocabulary, C numbers of a chunk.
"""

from __future__ import annotations

import math
from typing import Any

from keras import ops

from keras_attention.decoding.sampling import Sampling


def sampled_tokens(logits: Any, uniforms: Any, sampling: Sampling) -> Any:
    """Return a random token of each row of logits, float32 (R, V): ids, int32 (R, 1).

    `uniforms`, float32 (R,), are from 0 to less than 1.
    """
    largest = ops.max(logits, axis=-1, keepdims=True)
    weights = ops.exp((logits - largest) / sampling.temperature)
    size = weights.shape[-1]
    if sampling.top_k is not None and sampling.top_k < size:
        size = sampling.top_k
        weights = _at_least(weights, ops.top_k(weights, size)[0][:, -1:])
    if sampling.top_p is not None and sampling.top_p < 1.0:
        likeliest = ops.top_k(weights, size)[0]
        sums = ops.cumsum(likeliest, axis=-1)
        kept = (sums - likeliest) < sampling.top_p * ops.sum(weights, axis=-1, keepdims=True)
        least = ops.min(ops.where(kept, likeliest, 2.0), axis=-1, keepdims=True)
        weights = _at_least(weights, least)
    # In two steps, because small weights would be lost in one sum over a large vocabulary.
    chunk = math.isqrt(weights.shape[-1])
    weights = ops.pad(weights, ((0, 0), (0, -weights.shape[-1] % chunk)))
    weights = ops.reshape(weights, (-1, weights.shape[-1] // chunk, chunk))
    totals = ops.sum(weights, axis=-1)
    place, before = _place(totals, uniforms[:, None] * ops.sum(totals, axis=-1, keepdims=True))
    own = ops.take_along_axis(weights, place[..., None], axis=1)[:, 0]
    wanted = uniforms[:, None] * ops.sum(totals, axis=-1, keepdims=True) - before
    return place * chunk + _place(own, ops.maximum(wanted, 0.0))[0]


def _at_least(weights: Any, least: Any) -> Any:
    return ops.where(weights >= least, weights, 0.0)


def _place(weights: Any, wanted: Any) -> tuple[Any, Any]:
    """Return the first place (R, 1) where the running sum exceeds a number, and the sum before it.

    If rounding leaves none, the last place with a weight; never a place without.
    """
    size = weights.shape[-1]
    sums = ops.cumsum(weights, axis=-1)
    places = ops.arange(size, dtype="int32")
    rank = ops.where(sums > wanted, 2 * size - places, places)
    place = ops.argmax(ops.where(weights > 0.0, rank, -1), axis=-1)
    place = ops.cast(place, "int32")[:, None]
    before = ops.take_along_axis(sums - weights, place, axis=-1)
    return place, before
