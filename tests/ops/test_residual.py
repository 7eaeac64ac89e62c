"""Dropout + add + norm: the definition against NumPy, the fast kernel against the definition.

The mask that was drawn is read off the results, and given it everything else is known.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.operations import dropout_add_norm
from keras_attention.ops.reference import DEFINITIONS
from tests import oracle
from tests.helpers import numpy

DEFINITION = DEFINITIONS["dropout_add_norm"]
B, T, D = 6, 11, 72  # Wide enough for the fast kernel.
RATE, EPSILON = 0.3, 1e-6
rng = np.random.default_rng(10)
INPUTS = rng.normal(size=(B, T, D)).astype("float32")
UPDATE = rng.uniform(0.5, 2.0, size=(B, T, D)).astype("float32")
GAMMA = rng.uniform(0.5, 2.0, size=D).astype("float32")
BETA = rng.normal(size=D).astype("float32")
UPSTREAM = rng.normal(size=(B, T, D)).astype("float32")
ONES, ZEROS = np.ones(D, "float32"), np.zeros(D, "float32")


def kept(outputs):
    """The mask, from outputs for inputs of zeros and positive updates: a dropped unit is the row's least."""
    outputs = numpy(outputs)
    return outputs > outputs.min(axis=-1, keepdims=True) + 1e-3


def assert_rate(keep):
    """Within four standard deviations of the share asked for, over all and by column and row."""
    for axes in ((0, 1, 2), (0, 1), 2):
        shares = np.asarray(keep.mean(axis=axes))
        samples = keep.size / shares.size
        deviation = np.sqrt(RATE * (1 - RATE) / samples)
        assert np.abs(shares - (1 - RATE)).max() < 4.5 * deviation


def test_the_definition_equals_numpy():
    seed = keras.random.SeedGenerator(5)
    arrays = [ops.convert_to_tensor(x) for x in (INPUTS, UPDATE, GAMMA, BETA)]
    got = DEFINITION(*arrays, EPSILON, 0.0, seed)
    expected = oracle.layer_norm(INPUTS.astype("float64") + UPDATE, GAMMA, BETA, EPSILON)
    np.testing.assert_allclose(numpy(got), expected, atol=1e-5)


def test_the_definition_drops_and_scales():
    arrays = [ops.convert_to_tensor(x) for x in (np.zeros_like(INPUTS), UPDATE, ONES, ZEROS)]
    seed = keras.random.SeedGenerator(5)
    got = DEFINITION(*arrays, EPSILON, RATE, seed)
    keep = kept(got)
    assert_rate(keep)
    expected = oracle.layer_norm(np.where(keep, UPDATE / 0.7, 0.0), ONES, ZEROS, EPSILON)
    np.testing.assert_allclose(numpy(got), expected, atol=1e-5)
    again = kept(DEFINITION(*arrays, EPSILON, RATE, seed))
    assert 0.3 < (keep != again).mean() < 0.55  # 2 * 0.3 * 0.7: drawn anew.


def with_gradients(function, dtype, inputs=INPUTS, gamma=GAMMA, beta=BETA, update=UPDATE):
    """Outputs and gradients of `function(inputs, update, gamma, beta)` in a `tf.function`."""
    import tensorflow as tf

    @tf.function
    def run(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = function(*arguments)
        return outputs, tape.gradient(outputs, arguments, tf.cast(UPSTREAM, outputs.dtype))

    arguments = (
        tf.cast(inputs, dtype),
        tf.cast(update, dtype),
        tf.constant(gamma),
        tf.constant(beta),
    )
    return run(*arguments)


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("dtype,tolerance", [("float32", 2e-5), ("bfloat16", 0.04)])
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_the_fast_kernel_equals_the_definition(definitions, dtype, tolerance, rate):
    import tensorflow as tf

    seed = keras.random.SeedGenerator(5)
    fast = with_gradients(lambda *x: dropout_add_norm(*x, EPSILON, rate, seed), dtype)
    assert definitions == []
    # Where a unit was dropped, nothing goes back to it.
    keep = numpy(fast[1][1]) != 0.0
    if rate:
        assert_rate(keep)
    else:
        assert keep.mean() > 0.999

    def definition(inputs, update, gamma, beta):
        update = tf.where(keep, tf.cast(update, "float32") / (1 - rate), 0.0)
        inputs = tf.cast(inputs, "float32")
        return DEFINITION(inputs, update, gamma, beta, EPSILON, 0.0, seed)

    slow = with_gradients(definition, dtype)
    assert fast[0].dtype == dtype and fast[0].shape == INPUTS.shape
    assert [g.dtype for g in fast[1]] == [g.dtype for g in slow[1]]
    np.testing.assert_allclose(numpy(fast[0]), numpy(slow[0]), atol=tolerance, rtol=tolerance)
    for mine, expected in zip(fast[1], slow[1], strict=True):
        scale = np.abs(numpy(expected)).max()
        np.testing.assert_allclose(numpy(mine) / scale, numpy(expected) / scale, atol=tolerance)


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forward_and_backward_draw_the_same_mask(definitions, dtype):
    seed = keras.random.SeedGenerator(5)
    outputs, found = with_gradients(
        lambda *x: dropout_add_norm(*x, EPSILON, RATE, seed),
        dtype, inputs=np.zeros_like(INPUTS), gamma=ONES, beta=ZEROS,
    )  # fmt: skip
    assert definitions == []
    forward, backward = kept(outputs), numpy(found[1]) != 0.0
    # A gradient may be zero by rounding, but not behind a dropped unit.
    assert not (backward & ~forward).any()
    assert (backward != forward).mean() < (1e-4 if dtype == "float32" else 0.01)


@pytest.mark.backends("tensorflow")
def test_the_fast_kernel_draws_anew_in_every_step_and_as_the_seed_says(definitions):
    import tensorflow as tf

    zeros = tf.zeros_like(INPUTS)

    def masks(seed):
        seed = keras.random.SeedGenerator(seed)
        run = tf.function(lambda: dropout_add_norm(zeros, UPDATE, ONES, ZEROS, EPSILON, RATE, seed))
        return [kept(run()) for _ in range(2)]

    first, second = masks(5)
    assert definitions == []
    other = masks(6)[0]
    for one, another in ((first, second), (first, other), (first[0], first[1])):
        assert 0.3 < (one != another).mean() < 0.55
    np.testing.assert_array_equal(first, masks(5)[0])


@pytest.mark.backends("tensorflow")
def test_the_fast_kernel_serves_batches_of_unknown_size(definitions):
    import tensorflow as tf

    seed = keras.random.SeedGenerator(5)

    @tf.function(input_signature=[tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None, D))])
    def run(inputs, update):
        outputs = dropout_add_norm(inputs, update, GAMMA, BETA, EPSILON, 0.0, seed)
        assert outputs.shape.as_list() == [None, None, D]
        return outputs

    for rows in (1, B):
        expected = oracle.layer_norm((INPUTS + UPDATE)[:rows], GAMMA, BETA, EPSILON)
        np.testing.assert_allclose(run(INPUTS[:rows], UPDATE[:rows]), expected, atol=1e-5)
    assert definitions == []
