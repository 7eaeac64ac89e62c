"""The feed-forward network against equation 2."""

import keras
import numpy as np
import pytest

from keras_attention import FeedForward
from tests import oracle
from tests.helpers import numpy

B, T, D, F = 2, 3, 5, 7
rng = np.random.default_rng(12)
INPUTS = rng.normal(size=(B, T, D)).astype("float32")


def randomized(layer, shape=INPUTS.shape):
    layer.build(shape)
    layer.set_weights([rng.normal(size=w.shape).astype("float32") for w in layer.get_weights()])
    return layer


def in_tanh(x, w1, b1, w2, b2):
    return np.tanh(x @ w1 + b1) @ w2 + b2


@pytest.mark.parametrize(
    ("options", "written_out"),
    [
        ({}, oracle.feed_forward),
        ({"activation": "tanh"}, in_tanh),
        ({"activation": "silu", "gated": True}, oracle.swiglu),
    ],
)
def test_equals_equation_2_and_what_came_after(options, written_out):
    layer = randomized(FeedForward(F, **options))
    assert [w.shape for w in layer.get_weights()[:4]] == [(D, F), (F,), (F, D), (D,)]
    expected = written_out(INPUTS, *layer.get_weights())
    np.testing.assert_allclose(
        numpy(layer(INPUTS)), expected, atol=1e-4 if "gated" in options else 1e-5
    )


def test_dropout_acts_on_the_inner_units_in_training_only():
    layer = FeedForward(400, dropout=0.25, seed=3)
    layer.build((None, 1))
    # Unit i gets 1 and is passed on alone: the output counts the units that were kept.
    layer.set_weights([np.ones((1, 400)), np.zeros(400), np.ones((400, 1)), np.zeros(1)])
    x = np.ones((50, 1, 1), "float32")
    np.testing.assert_allclose(numpy(layer(x)), 400.0, rtol=1e-6)
    np.testing.assert_allclose(numpy(layer(x, training=False)), 400.0, rtol=1e-6)
    dropped = numpy(layer(x, training=True)) * 0.75  # Kept ones are divided by 0.75.
    np.testing.assert_allclose(dropped, np.round(dropped), atol=1e-3)
    assert dropped.mean() == pytest.approx(300, abs=8) and dropped.std() > 4


def test_any_rank_in_functional_and_sequential_models():
    model = keras.Sequential([keras.Input((None, 4, D)), FeedForward(F)])
    got = model.predict(np.ones((B, 3, 4, D), "float32"), verbose=0)
    assert got.shape == (B, 3, 4, D) and model.output_shape == (None, None, 4, D)
    np.testing.assert_allclose(got, np.broadcast_to(got[0, 0, 0], got.shape), atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    layer = randomized(FeedForward(F, dtype=policy))
    got = layer(INPUTS)
    assert keras.backend.standardize_dtype(got.dtype) == policy.removeprefix("mixed_")
    expected = oracle.feed_forward(INPUTS, *layer.get_weights())
    np.testing.assert_allclose(numpy(got), expected, atol=0.2)
