"""The kernels of TensorFlow against their plain definitions and NumPy: values and gradients."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops import operations
from keras_attention.ops.reference import DEFINITIONS
from tests.helpers import numpy

pytestmark = pytest.mark.backends("tensorflow")

B, T, S, N, K, V = 2, 3, 5, 4, 17, 19  # N K and N V are wide enough for the fast kernel.
rng = np.random.default_rng(18)


def normal(*shape):
    return rng.normal(size=shape).astype("float32")


def with_gradients(function, arrays, upstream, dtype, any_shape=False):
    """Outputs and gradients of `function` in a `tf.function`, all as float32 NumPy arrays."""
    import tensorflow as tf

    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
        return outputs, tape.gradient(outputs, inputs, tf.cast(upstream, outputs.dtype))

    inputs, signature = [tf.cast(array, dtype) for array in arrays], None
    if any_shape:
        # Known are the widths, and the heads before them.
        known = {4: 2, 3: 1, 2: 1, 1: 1}
        shapes = [(*[None] * (x.ndim - known[x.ndim]), *x.shape[-known[x.ndim] :]) for x in arrays]
        signature = [tf.TensorSpec(shape, dtype) for shape in shapes]
    outputs, gradients = tf.function(run, input_signature=signature)(*inputs)
    assert outputs.dtype == dtype and all(gradient.dtype == dtype for gradient in gradients)
    return numpy(outputs), [numpy(gradient) for gradient in gradients]


def assert_close(got, expected, tolerance):
    for mine, his in zip([got[0], *got[1]], [expected[0], *expected[1]], strict=True):
        assert mine.shape == his.shape
        np.testing.assert_allclose(mine, his, atol=tolerance * np.abs(his).max())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 0.03)])
def test_attention_equals_its_definition(definitions, dtype, tolerance):
    mask = rng.random((B, 1, T, S)) < 0.6
    mask[1, 0, 2], mask[0, 0, 0] = False, True
    arrays = normal(B, T, N, K), normal(B, S, N, K), normal(B, S, N, V)
    upstream = normal(B, T, N, V)

    def outputs(function):
        return lambda *x: function(*x, mask=mask, scale=0.3)[0]

    # The definition in float32, of the same numbers.
    rounded = [numpy(ops.cast(array, dtype)) for array in arrays]
    expected = with_gradients(
        outputs(DEFINITIONS["dot_product_attention"]), rounded, upstream, "float32"
    )
    definitions.clear()
    got = with_gradients(
        outputs(operations.dot_product_attention), arrays, upstream, dtype, any_shape=True
    )
    assert definitions == []
    assert_close(got, expected, tolerance)
    assert (got[0][1, 2] == 0.0).all()


def test_attention_without_mask_through_weights_and_dropout(definitions):
    arrays = normal(B, T, N, K), normal(B, S, N, K), normal(B, S, N, V)
    upstream, factor = normal(B, N, T, S), normal(B, N, T, S)

    def run(function):
        def of_weights(*inputs):
            outputs, weights = function(*inputs, dropout=lambda weights: weights * factor)
            return weights * ops.sum(outputs)

        return of_weights

    expected = with_gradients(
        run(DEFINITIONS["dot_product_attention"]), arrays, upstream, "float32"
    )
    got = with_gradients(run(operations.dot_product_attention), arrays, upstream, "float32")
    assert definitions == []
    assert_close(got, expected, 5e-6)
