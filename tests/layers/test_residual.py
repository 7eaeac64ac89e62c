"""Dropout, residual sum and normalisation against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import ResidualConnection
from tests import oracle
from tests.helpers import numpy

B, T, D = 2, 3, 5
rng = np.random.default_rng(13)
INPUTS, UPDATE = rng.normal(size=(2, B, T, D)).astype("float32")


def randomized(layer, width=D):
    layer.build((None, None, width))
    gamma, beta = rng.uniform(0.5, 2.0, size=(2, width)).astype("float32")
    layer.normalization.gamma.assign(gamma)
    layer.normalization.beta.assign(beta)
    return layer, gamma, beta


def test_post_norm():
    layer, gamma, beta = randomized(ResidualConnection())
    expected = oracle.layer_norm(INPUTS + UPDATE, gamma, beta, 1e-6)
    np.testing.assert_allclose(numpy(layer(INPUTS, UPDATE)), expected, atol=1e-5)
    np.testing.assert_array_equal(numpy(layer.normalize_input(INPUTS)), INPUTS)


def test_pre_norm():
    layer, gamma, beta = randomized(ResidualConnection(normalize_first=True))
    np.testing.assert_allclose(numpy(layer(INPUTS, UPDATE)), INPUTS + UPDATE, atol=1e-6)
    expected = oracle.layer_norm(INPUTS, gamma, beta, 1e-6)
    np.testing.assert_allclose(numpy(layer.normalize_input(INPUTS)), expected, atol=1e-5)


@pytest.mark.parametrize(
    "dtype, tolerance", [("float32", 1e-5), ("float64", 1e-10), ("mixed_bfloat16", 0.05)]
)
@pytest.mark.parametrize("normalize_first", [False, True])
def test_rms_norm(normalize_first, dtype, tolerance):
    if dtype == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 unless it is switched on.")
    options = {"normalize_first": normalize_first, "epsilon": 0.1, "dtype": dtype}
    layer = ResidualConnection(dropout=1e-12, normalization="rms", **options)
    layer.build(INPUTS.shape)
    gain = rng.uniform(0.5, 2.0, D).astype("float32")
    layer.normalization.scale.assign(gain)
    inputs, update = (ops.cast(x, layer.compute_dtype) for x in (INPUTS, UPDATE))
    got = layer.normalize_input(inputs) if normalize_first else layer(inputs, update, training=True)
    assert keras.backend.standardize_dtype(got.dtype) == layer.compute_dtype
    summed = np.array(INPUTS if normalize_first else INPUTS.astype("float64") + UPDATE, "float64")
    expected = oracle.rms_norm(summed, gain, 0.1)
    found = ops.convert_to_numpy(got).astype("float64")
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
@pytest.mark.parametrize("training", [False, True])
def test_epsilon_is_inside_the_root(epsilon, training):
    """Rows of variance 1e-6: what is added to it decides the size of the result."""
    arguments = {} if epsilon == 1e-6 else {"epsilon": epsilon}
    layer, gamma, beta = randomized(ResidualConnection(dropout=1e-7, **arguments))
    small = np.tile(np.array([1e-3, -1e-3, 1e-3, -1e-3, 0.0], "float32"), (B, T, 1))
    expected = oracle.layer_norm(small, gamma, beta, epsilon)
    got = numpy(layer(small, np.zeros_like(small), training=training))
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_dropout_scales_what_it_keeps_of_the_update_alone(normalize_first):
    width = 200
    layer, gamma, beta = randomized(
        ResidualConnection(dropout=0.3, normalize_first=normalize_first, seed=2), width
    )
    inputs = np.zeros((B, T, width), "float32")
    update = np.ones((B, T, width), "float32")
    got = numpy(layer(inputs, update, training=True))
    if normalize_first:
        keep = got > 0.5
        expected = np.where(keep, 1 / 0.7, 0.0)
    else:
        keep = (got - beta) / gamma > 0  # Above the mean of the row.
        expected = oracle.layer_norm(np.where(keep, 1 / 0.7, 0.0), gamma, beta, 1e-6)
    assert keep.mean() == pytest.approx(0.7, abs=0.05)
    np.testing.assert_allclose(got, expected, atol=1e-4)
    calm = numpy(layer(inputs, update, training=False))
    assert np.ptp(calm[..., 0]) == 0.0
    again = numpy(layer(inputs, update, training=True))
    assert np.abs(again - got).max() > 0.5


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("training", [False, True])
def test_mixed_precision(policy, training):
    layer, gamma, beta = randomized(ResidualConnection(dropout=1e-7, dtype=policy))
    got = layer(*(ops.cast(x, layer.compute_dtype) for x in (INPUTS, UPDATE)), training=training)
    assert keras.backend.standardize_dtype(got.dtype) == policy.removeprefix("mixed_")
    expected = oracle.layer_norm(INPUTS + UPDATE, gamma, beta, 1e-6)
    np.testing.assert_allclose(numpy(got), expected, atol=0.1)
