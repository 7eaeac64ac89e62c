"""Smoothed cross-entropy: its definition and each backend's kernel against NumPy."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops.operations import smoothed_crossentropy, token_nll
from keras_attention.ops.reference import DEFINITIONS
from tests import oracle
from tests.gradients import compiled, gradients
from tests.helpers import numpy

DEFINITION = DEFINITIONS["smoothed_crossentropy"]
ROWS, V = 5, 67  # Wide enough for the fast kernels.
rng = np.random.default_rng(9)
LABELS = rng.integers(0, V, size=ROWS)
LOGITS = (3 * rng.normal(size=(ROWS, V))).astype("float32")
UPSTREAM = rng.normal(size=ROWS).astype("float32")


@pytest.mark.parametrize("function", [DEFINITION, smoothed_crossentropy])
# The last ones do not sum to 1.
@pytest.mark.parametrize("values", [(1.0, 0.0), (0.9, 0.1 / (V - 1)), (0.8, 0.01)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_losses_and_gradients_equal_numpy(definitions, function, values, dtype):
    logits = numpy(ops.cast(LOGITS, dtype))

    def losses(logits):
        return function(ops.cast(logits, dtype), ops.convert_to_tensor(LABELS), *values)

    q = np.where(np.arange(V) == LABELS[:, None], *values)
    log_p = np.log([oracle.softmax(row) for row in logits.astype("float64")])
    found = compiled(losses)(logits)
    upstream = ops.convert_to_tensor(UPSTREAM)
    assert "float32" in str(found.dtype)
    np.testing.assert_allclose(numpy(found), -(q * log_p).sum(-1), rtol=1e-5)
    (gradient,) = gradients(compiled(lambda logits: ops.sum(losses(logits) * upstream)), logits)
    expected = (q.sum(-1, keepdims=True) * np.exp(log_p) - q) * UPSTREAM[:, None]
    # One rounding away from the other: 2^-8 of it in bfloat16.
    tolerance = {"float32": (2e-5, 5e-7), "bfloat16": (2**-7, 1e-6)}[dtype]
    np.testing.assert_allclose(gradient, expected, *tolerance)
    assert definitions == []


@pytest.mark.parametrize("function", [DEFINITION, smoothed_crossentropy])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_loss_is_finite_where_float32_can_hold_it(function, sign):
    """Also if the sum of the logits is beyond its range. The label's is the largest: it is the normaliser."""
    logits = np.full((1, V), sign * 3e38, "float32")
    logits[0, 1::2] = -1e38
    label, off = int(sign < 0), 0.1 / (V - 1)
    others = np.delete(logits[0].astype("float64"), label)
    losses = compiled(lambda z: function(z, ops.convert_to_tensor([label]), 0.9, off))
    got = numpy(losses(ops.convert_to_tensor(logits)))
    np.testing.assert_allclose(got, [np.sum(off * (logits[0, label] - others))], rtol=1e-5)


def test_token_nll_is_the_unsmoothed_one():
    got = numpy(token_nll(ops.convert_to_tensor(LOGITS), LABELS))
    expected = [oracle.smoothed_nll(LOGITS[row], LABELS[row], 0.0) for row in range(ROWS)]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.backends("tensorflow")
def test_the_fast_kernel_serves_rows_of_unknown_number(definitions):
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, V)), tf.TensorSpec((None,), tf.int32)])
    def losses(logits, labels):
        return smoothed_crossentropy(logits, labels, 0.9, 0.1 / (V - 1))

    for rows in (1, ROWS):
        expected = [oracle.smoothed_nll(LOGITS[row], LABELS[row], 0.1) for row in range(rows)]
        np.testing.assert_allclose(losses(LOGITS[:rows], LABELS[:rows]), expected, rtol=1e-5)
    assert definitions == []


@pytest.mark.backends("tensorflow")
def test_eager_calls_and_narrow_logits_take_the_definition(definitions):
    import tensorflow as tf

    smoothed_crossentropy(tf.constant(LOGITS), LABELS, 1.0, 0.0)
    tf.function(smoothed_crossentropy)(tf.constant(LOGITS[:, :63]), LABELS % 63, 1.0, 0.0)
    assert definitions == ["smoothed_crossentropy"] * 2
