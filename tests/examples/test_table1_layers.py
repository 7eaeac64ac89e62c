"""Layers of Table 1: FLOPs and path lengths beside the paper's formulae."""

import math

import numpy as np
import pytest
from keras import ops
from table1_layer_complexity import LAYER_TYPES
from table1_layers import AttentionCore, layer_flops, make_layer, path_length, path_length_formula

pytestmark = pytest.mark.backends("tensorflow")


@pytest.mark.parametrize("n", [8, 33, 64])
def test_path_lengths_from_the_jacobian(n):
    assert path_length("self_attention", n) == 1
    assert path_length("recurrent", n) == n
    assert path_length("restricted_self_attention", n, window=4) == math.ceil((n - 1) / 3)
    assert path_length("convolutional", n, k=5) == math.ceil((n - 1) / 2)
    assert path_length("convolutional", n, k=5, causal=True) == math.ceil((n - 1) / 4)
    assert path_length("separable", n, k=3) == n - 1
    # The smallest power of 3 that is not below n.
    assert path_length("dilated", n, k=3) == {8: 2, 33: 4, 64: 4}[n]


@pytest.mark.parametrize("kind", LAYER_TYPES)
def test_the_formula_of_every_layer(kind):
    for n in (9, 28):
        assert path_length_formula(kind, n, k=3, window=3) == path_length(kind, n, k=3, window=3)


def test_flops_by_counting():
    n, d, k, window = 11, 6, 3, 4
    pairs = sum(abs(t - s) < window for t in range(n) for s in range(n))
    restricted = layer_flops("restricted_self_attention", n, d, window=window, core=True)
    assert restricted == 2 * 2 * pairs * d
    assert layer_flops("self_attention", n, d) == 4 * n * n * d + 2 * 4 * n * d * d
    # Products with the weights: all but the biases, once a position.
    for kind in ("recurrent", "convolutional", "separable"):
        layer = make_layer(kind, d, k)
        layer.build((1, n, d))
        weights = sum(w.shape[0] * np.prod(w.shape[1:]) for w in layer.weights if w.ndim > 1)
        assert layer_flops(kind, n, d, k) == 2 * n * weights


@pytest.mark.parametrize(("n", "d"), [(7, 5), (64, 16), (33, 128)])
def test_a_separable_convolution_over_the_whole_text_costs_half_of_attention_and_a_network(n, d):
    """Section 4: with k = n, its complexity is that of self-attention and a point-wise network together."""
    network = 2 * 2 * n * d * d  # as wide as the model
    both = layer_flops("self_attention", n, d, core=True) + network
    assert both == 2 * layer_flops("separable", n, d, k=n)


def test_the_windowed_core_equals_the_full_one_where_the_window_hides_nothing():
    x = np.random.default_rng(3).normal(size=(2, 7, 5)).astype("float32")
    full, windowed = (ops.convert_to_numpy(AttentionCore(w)(x)) for w in (None, 7))
    np.testing.assert_allclose(windowed, full, atol=1e-5)
    assert np.abs(ops.convert_to_numpy(AttentionCore(2)(x)) - full).max() > 1e-2
