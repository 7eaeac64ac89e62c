"""Smoothed cross-entropy: the definition against NumPy, the fast kernel against the definition."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops.operations import smoothed_crossentropy, token_nll
from keras_attention.ops.reference import DEFINITIONS
from tests import oracle
from tests.gradients import gradients

DEFINITION = DEFINITIONS["smoothed_crossentropy"]
ROWS, V = 5, 67  # Wide enough for the fast kernel.
rng = np.random.default_rng(9)
LABELS = rng.integers(0, V, size=ROWS)
LOGITS = (3 * rng.normal(size=(ROWS, V))).astype("float32")
UPSTREAM = rng.normal(size=ROWS).astype("float32")


def expected_gradient(epsilon):
    """(p - q) times what comes from above."""
    exponentials = np.exp(LOGITS.astype("float64"))
    p = exponentials / exponentials.sum(-1, keepdims=True)
    q = np.where(np.arange(V) == LABELS[:, None], 1 - epsilon, epsilon / (V - 1))
    return (p - q) * UPSTREAM[:, None]


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_definition_equals_one_token_at_a_time(epsilon):
    def losses(logits):
        return DEFINITION(
            logits, ops.convert_to_tensor(LABELS, "int32"), 1 - epsilon, epsilon / (V - 1)
        )

    expected = [
        oracle.smoothed_nll(LOGITS[row].astype("float64"), LABELS[row], epsilon)
        for row in range(ROWS)
    ]
    got = ops.convert_to_numpy(losses(ops.convert_to_tensor(LOGITS)))
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    upstream = ops.convert_to_tensor(UPSTREAM)
    (gradient,) = gradients(lambda logits: ops.sum(losses(logits) * upstream), LOGITS)
    np.testing.assert_allclose(gradient, expected_gradient(epsilon), atol=2e-6)


def test_token_nll_is_the_unsmoothed_one():
    got = ops.convert_to_numpy(token_nll(ops.convert_to_tensor(LOGITS), LABELS))
    expected = [oracle.smoothed_nll(LOGITS[row], LABELS[row], 0.0) for row in range(ROWS)]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("values", [(1.0, 0.0), (0.9, 0.1 / (V - 1)), (0.8, 0.01)])
def test_the_fast_kernel_equals_the_definition(definitions, dtype, values):
    import tensorflow as tf

    labels = tf.constant(LABELS, "int32")

    def both(function, logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = function(logits, labels, *values)
        return losses, tape.gradient(losses, logits, UPSTREAM)

    logits = tf.cast(LOGITS, dtype)
    fast = tf.function(both)(smoothed_crossentropy, logits)
    assert definitions == []
    slow = both(DEFINITION, logits)
    assert fast[0].dtype == tf.float32 and fast[1].dtype == logits.dtype
    np.testing.assert_allclose(fast[0], slow[0], rtol=2e-6, atol=2e-6)
    # A gradient is one rounding away from the other: 2^-8 of it in bfloat16.
    tolerance = {"float32": (2e-5, 2e-7), "bfloat16": (2**-7, 1e-6)}[dtype]
    got, expected = (tf.cast(gradient, "float32") for _, gradient in (fast, slow))
    np.testing.assert_allclose(got, expected, rtol=tolerance[0], atol=tolerance[1])


@pytest.mark.backends("tensorflow")
def test_the_fast_kernel_serves_rows_of_unknown_number(definitions):
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, V)), tf.TensorSpec((None,), tf.int32)])
    def losses(logits, labels):
        return smoothed_crossentropy(logits, labels, 0.9, 0.1 / (V - 1))

    for rows in (1, ROWS):
        expected = DEFINITION(
            tf.constant(LOGITS[:rows]), tf.constant(LABELS[:rows]), 0.9, 0.1 / (V - 1)
        )
        np.testing.assert_allclose(losses(LOGITS[:rows], LABELS[:rows]), expected, rtol=1e-5)
    assert definitions == []


@pytest.mark.backends("tensorflow")
def test_eager_calls_and_narrow_logits_take_the_definition(definitions):
    import tensorflow as tf

    smoothed_crossentropy(tf.constant(LOGITS), LABELS, 1.0, 0.0)
    tf.function(smoothed_crossentropy)(tf.constant(LOGITS[:, :63]), LABELS % 63, 1.0, 0.0)
    assert definitions == ["smoothed_crossentropy"] * 2
