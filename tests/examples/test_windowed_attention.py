"""Attention in blocks against attention with a mask over all positions."""

import numpy as np
import pytest
import windowed_attention as room
from keras import ops

from keras_attention.ops.operations import dot_product_attention
from tests.gradients import gradients
from tests.helpers import numpy

B, T, N, K, V = 2, 23, 3, 5, 4
rng = np.random.default_rng(9)
QUERY, KEY, VALUE, WEIGHTS = (
    rng.normal(size=(B, T, N, width)).astype("float32") for width in (K, K, V, V)
)
SEEN = rng.random((B, T)) < 0.7
SEEN[1, 8:18] = False  # Wider than any window: some rows may attend to nothing.


def band(window, causal):
    distance = np.arange(T)[None, :] - np.arange(T)[:, None]
    return (np.abs(distance) < window) & ((distance <= 0) | (not causal))


def attend(query, key, value, mask):
    return dot_product_attention(query, key, value, mask)[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "window, block, seen", [(1, 2, None), (4, 4, SEEN), (3, 6, None), (5, 30, SEEN)]
)
def test_equals_attention_under_a_mask(monkeypatch, window, block, seen, causal):
    monkeypatch.setattr(room, "SMALLEST_BLOCK", block)
    mask = np.broadcast_to(band(window, causal)[None, None], (B, 1, T, T))
    mask = mask if seen is None else mask & seen[:, None, None, :]

    def plain(query, key, value):
        return attend(query, key, value, ops.convert_to_tensor(mask))

    def blocked(query, key, value):
        seen_mask = None if seen is None else ops.convert_to_tensor(seen)
        return room.windowed_attention(query, key, value, attend, window, seen_mask, causal)

    inputs = [ops.convert_to_tensor(x) for x in (QUERY, KEY, VALUE)]
    np.testing.assert_allclose(numpy(blocked(*inputs)), numpy(plain(*inputs)), atol=1e-5)
    if window == 4:
        weights = ops.convert_to_tensor(WEIGHTS)
        got = gradients(lambda *x: ops.sum(blocked(*x) * weights), QUERY, KEY, VALUE)
        expected = gradients(lambda *x: ops.sum(plain(*x) * weights), QUERY, KEY, VALUE)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
