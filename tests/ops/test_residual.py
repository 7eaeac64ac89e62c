"""Dropout alone, and with add and norm: definitions and each backend's kernels against NumPy.

The mask that was drawn is read off the results, and given it everything else is known.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.operations import dropout, dropout_add_norm
from keras_attention.ops.reference import DEFINITIONS
from tests import oracle
from tests.dropout_statistics import assert_independent, assert_share_is_kept
from tests.gradients import compiled, gradients
from tests.helpers import numpy

BACKEND = keras.backend.backend()
# TensorFlow's kernel rounds to half precision once more, and JAX' own operations do.
TOLERANCES = {"torch": {"float32": 5e-6, "bfloat16": 0.02}}
TOLERANCE = TOLERANCES.get(BACKEND, {"float32": 2e-5, "bfloat16": 0.04})
BOTH_DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE))
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
    assert_share_is_kept(keep, RATE)
    expected = oracle.layer_norm(np.where(keep, UPDATE / 0.7, 0.0), ONES, ZEROS, EPSILON)
    np.testing.assert_allclose(numpy(got), expected, atol=1e-5)
    again = kept(DEFINITION(*arrays, EPSILON, RATE, seed))
    assert 0.3 < (keep != again).mean() < 0.55  # 2 * 0.3 * 0.7: drawn anew.


@BOTH_DTYPES
@pytest.mark.parametrize("rate", [0.0, RATE])
def test_the_fast_kernel_equals_the_definition(definitions, dtype, rate):
    def kernel():
        seed = keras.random.SeedGenerator(5)  # Of its own: the same mask.
        return compiled(
            lambda inputs, update, *norm: dropout_add_norm(
                ops.cast(inputs, dtype), ops.cast(update, dtype), *norm, EPSILON, rate, seed
            )
        )

    arrays = INPUTS, UPDATE, GAMMA, BETA
    outputs = kernel()(*map(ops.convert_to_tensor, arrays))
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    slopes = gradients(
        lambda *x: ops.sum(ops.cast(kernel()(*x), "float32") * ops.convert_to_tensor(UPSTREAM)),
        *arrays,
    )
    assert definitions == []
    # Where a unit was dropped, nothing goes back to it.
    keep = slopes[1] != 0.0
    if rate:
        assert_share_is_kept(keep, RATE)
    else:
        assert keep.mean() > 0.999

    def definition(inputs, update, gamma, beta):
        update = ops.where(ops.convert_to_tensor(keep), update / (1 - rate), 0.0)
        return DEFINITION(inputs, update, gamma, beta, EPSILON, 0.0, None)

    rounded = [numpy(ops.cast(array, dtype)) for array in (INPUTS, UPDATE)]
    arrays = *rounded, GAMMA, BETA
    expected = [
        numpy(definition(*map(ops.convert_to_tensor, arrays))),
        *gradients(lambda *x: ops.sum(definition(*x) * ops.convert_to_tensor(UPSTREAM)), *arrays),
    ]
    for found, wanted in zip([numpy(outputs), *slopes], expected, strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found / scale, wanted / scale, atol=TOLERANCE[dtype])


@BOTH_DTYPES
def test_dropout_sends_back_what_it_kept_and_scales_both_ways(definitions, dtype):
    def run():
        seed = keras.random.SeedGenerator(5)
        return compiled(lambda x: dropout(ops.cast(x, dtype), RATE, seed=seed))

    outputs = numpy(run()(ops.convert_to_tensor(UPDATE)))
    (slope,) = gradients(lambda x: ops.sum(ops.cast(run()(x), "float32") * 3.0), UPDATE)
    assert definitions == []
    keep = outputs != 0.0
    assert_share_is_kept(keep, RATE)
    tolerance = 1e-6 if dtype == "float32" else 0.01
    np.testing.assert_allclose(outputs, np.where(keep, UPDATE / 0.7, 0.0), rtol=tolerance)
    np.testing.assert_allclose(slope, np.where(keep, 3.0 / 0.7, 0.0), rtol=tolerance)


def masks(rate, seed, steps=2, shape=(40, 30, D)):
    """Masks of successive steps."""
    update = ops.convert_to_tensor(rng.uniform(0.5, 2.0, shape).astype("float32"))
    seed = keras.random.SeedGenerator(seed)
    run = compiled(
        lambda update: dropout_add_norm(
            ops.zeros_like(update), update, ONES, ZEROS, EPSILON, rate, seed
        )
    )
    return [kept(run(update)) for _ in range(steps)]


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_the_share_asked_for_is_kept_everywhere(definitions, rate):
    keep = masks(rate, seed=5)[0]
    assert definitions == []
    assert_share_is_kept(keep, rate)


def test_draws_are_independent_by_position_step_and_seed():
    first, second = (mask.ravel() for mask in masks(RATE, seed=5))
    others = {"step": second, "seed": masks(RATE, seed=6)[0].ravel()}
    if BACKEND == "tensorflow":  # Others' seeds have 31 bits.
        others["large seed"] = masks(RATE, seed=2**31 + 5)[0].ravel()
    assert_independent(first, others, RATE, (1, 2, 3, 4, 8, D, 2 * D, 1024))
    np.testing.assert_array_equal(first, masks(RATE, seed=5)[0].ravel())


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
