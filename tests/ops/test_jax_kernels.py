"""The kernels of JAX against NumPy: values and gradients, and what their dropout draws."""

import keras
import numpy as np
import pytest
from keras import ops

from tests import oracle
from tests.dropout_statistics import assert_independent, assert_share_is_kept
from tests.gradients import gradients

pytestmark = pytest.mark.backends("jax")

ROWS, V, D = 5, 67, 72
rng = np.random.default_rng(12)
LABELS = rng.integers(0, V, size=ROWS)
LOGITS = (3 * rng.normal(size=(ROWS, V))).astype("float32")
UPSTREAM = rng.normal(size=ROWS).astype("float32")


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("dtype,tolerance", [("float32", 2e-6), ("bfloat16", 0.02)])
def test_crossentropy_and_its_gradient_equal_numpy(definitions, epsilon, dtype, tolerance):
    from keras_attention.ops.operations import smoothed_crossentropy

    logits = ops.convert_to_numpy(ops.cast(ops.cast(LOGITS, dtype), "float32"))

    def losses(x):
        return smoothed_crossentropy(ops.cast(x, dtype), LABELS, 1 - epsilon, epsilon / (V - 1))

    expected = [
        oracle.smoothed_nll(logits[i].astype("float64"), LABELS[i], epsilon) for i in range(ROWS)
    ]
    np.testing.assert_allclose(losses(logits), expected, rtol=1e-5)
    assert definitions == []

    exponentials = np.exp(logits.astype("float64"))
    p = exponentials / exponentials.sum(-1, keepdims=True)
    q = np.where(np.arange(V) == LABELS[:, None], 1 - epsilon, epsilon / (V - 1))
    (gradient,) = gradients(lambda x: ops.sum(losses(x) * UPSTREAM), logits)
    np.testing.assert_allclose(gradient, (p - q) * UPSTREAM[:, None], atol=tolerance)


def masks(rate, seed, steps=2, shape=(40, 30, D)):
    """Masks of successive steps, read off sums of zeros and ones: a dropped unit is its row's least."""
    from keras_attention.ops.backends.jax import dropout_add_norm

    seed = keras.random.SeedGenerator(seed)
    zeros, ones = np.zeros(shape, "float32"), np.ones(shape, "float32")
    gamma, beta = np.ones(shape[-1], "float32"), np.zeros(shape[-1], "float32")
    drawn = [
        np.asarray(dropout_add_norm(zeros, ones, gamma, beta, 1e-6, rate, seed))
        for _ in range(steps)
    ]
    return [outputs > 0.0 for outputs in drawn]


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_dropout_keeps_the_share_asked_for_everywhere(rate):
    keep = masks(rate, seed=5)[0]
    assert_share_is_kept(keep, rate)


def test_dropout_draws_independently_by_position_step_and_seed():
    rate = 0.3
    first, second = (mask.ravel() for mask in masks(rate, seed=5))
    others = {"step": second, "seed": masks(rate, seed=6)[0].ravel()}
    assert_independent(first, others, rate, (1, 2, 3, 8, D, 1024, 2 * D))
    np.testing.assert_array_equal(first, masks(rate, seed=5)[0].ravel())


def test_dropout_scales_and_sends_nothing_back_to_what_it_dropped():
    from keras_attention.ops.backends.jax import dropout_add_norm

    shape = (3, 4, D)
    inputs = rng.normal(size=shape).astype("float32")
    update = rng.uniform(0.5, 2.0, size=shape).astype("float32")
    upstream = rng.normal(size=shape).astype("float32")
    gamma = rng.uniform(0.5, 2.0, size=D).astype("float32")
    beta = rng.normal(size=D).astype("float32")

    def total(inputs, update):
        # A seed of its own for each call: the same mask.
        seed = keras.random.SeedGenerator(5)
        outputs = dropout_add_norm(inputs, update, gamma, beta, 1e-6, 0.3, seed)
        return ops.sum(outputs * upstream), outputs

    (_, to_update) = gradients(lambda *x: total(*x)[0], inputs, update)
    keep = np.asarray(to_update) != 0.0
    assert 0.6 < keep.mean() < 0.8
    dropped = inputs.astype("float64") + np.where(keep, update / 0.7, 0.0)
    expected = oracle.layer_norm(dropped, gamma, beta, 1e-6)
    np.testing.assert_allclose(total(inputs, update)[1], expected, atol=2e-5)
