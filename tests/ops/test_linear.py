"""Affine maps of the last axis against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.operations import (
    fold_leading_axes,
    joined_linear,
    linear,
    unfold_leading_axes,
)

rng = np.random.default_rng(7)


@pytest.mark.parametrize("leading", [(3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_numpy_at_every_rank(leading, with_bias):
    x, kernel, bias = (
        rng.normal(size=shape).astype("float32") for shape in ((*leading, 5), (5, 7), (7,))
    )
    got = linear(ops.convert_to_tensor(x), kernel, bias if with_bias else None)
    expected = np.einsum("...d,df->...f", x, kernel) + (bias if with_bias else 0.0)
    assert tuple(got.shape) == (*leading, 7)
    np.testing.assert_allclose(ops.convert_to_numpy(got), expected, atol=1e-5)


@pytest.mark.parametrize("heads", [3, 17])  # Narrow, and wide enough for the fast forms.
@pytest.mark.parametrize("with_bias", [False, True])
def test_heads_are_made_and_joined_as_numpy_does(heads, with_bias):
    rng = np.random.default_rng(3)
    x, kernel, bias, back, end = (
        rng.normal(size=shape).astype("float32")
        for shape in ((2, 4, 5), (5, heads, 7), (heads, 7), (heads, 7, 6), (6,))
    )
    made = linear(ops.convert_to_tensor(x), kernel, bias if with_bias else None)
    expected = np.einsum("btd,dnk->btnk", x, kernel) + (bias if with_bias else 0.0)
    np.testing.assert_allclose(ops.convert_to_numpy(made), expected, atol=1e-5)
    joined = linear(made, back, end if with_bias else None, input_axes=2)
    expected = np.einsum("btnk,nkd->btd", expected, back) + (end if with_bias else 0.0)
    np.testing.assert_allclose(ops.convert_to_numpy(joined), expected, atol=2e-4)


@pytest.mark.parametrize("heads", [2, 17])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    "in_graph", [False, pytest.param(True, marks=pytest.mark.backends("tensorflow"))]
)
def test_several_kernels_in_one_product(heads, with_bias, in_graph):
    rng = np.random.default_rng(4)
    widths = (3, 3, 7)
    shapes = [(5, heads, width) for width in widths], [(heads, width) for width in widths]
    x, *weights = (
        rng.normal(size=shape).astype("float32") for shape in ((2, 4, 5), *shapes[0], *shapes[1])
    )
    kernels, biases = weights[:3], weights[3:] if with_bias else None
    arrays = [ops.convert_to_tensor(kernel) for kernel in kernels]

    def run(x):
        return joined_linear(x, arrays, biases)

    if in_graph:
        import tensorflow as tf

        run = tf.function(run)
    got = run(ops.convert_to_tensor(x))
    for index, (part, kernel) in enumerate(zip(got, kernels, strict=True)):
        expected = np.einsum("btd,dnk->btnk", x, kernel) + (biases[index] if with_bias else 0.0)
        np.testing.assert_allclose(ops.convert_to_numpy(part), expected, atol=1e-5)


def test_folding_and_unfolding_keep_the_order():
    x = ops.reshape(ops.arange(2 * 3 * 5), (2, 3, 5))
    folded = fold_leading_axes(x)
    np.testing.assert_array_equal(ops.convert_to_numpy(folded), np.arange(30).reshape(6, 5))
    back = unfold_leading_axes(folded[:, :4], x)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(back), np.arange(30).reshape(2, 3, 5)[..., :4]
    )


def test_axes_that_are_known_only_in_the_graph():
    class Linear(keras.layers.Layer):
        def build(self, input_shape):
            self.kernel = self.add_weight(shape=(5, 7), initializer="ones")

        def call(self, inputs):
            return linear(inputs, self.kernel)

    inputs = keras.Input((None, 5))
    model = keras.Model(inputs, Linear()(inputs))
    got = model.predict(np.ones((2, 3, 5), "float32"), verbose=0)
    np.testing.assert_allclose(got, np.full((2, 3, 7), 5.0))
