"""Products of 8-bit integers, against loops over integers."""

import keras
import numpy as np
import pytest

from keras_attention.ops.int8 import int8_linear, quantized_weight
from tests.helpers import numpy

R, D, F = 5, 33, 19


def factors(seed=1):
    """Rows and columns of very different sizes; one of each is zero."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((R, D)) * 10.0 ** random.integers(-3, 3, (R, 1))
    kernel = random.standard_normal((D, F)) * 10.0 ** random.integers(-3, 3, F)
    x[2], kernel[:, 4] = 0.0, 0.0
    return (
        x.astype("float32"),
        kernel.astype("float32"),
        random.standard_normal(F).astype("float32"),
    )


def integer_product(x, kernel, bias, levels):
    """The definition in exact integers, but for the last step."""
    outputs = np.empty((len(x), kernel.shape[1]))
    for r in range(len(x)):
        row_scale = max(float(np.abs(x[r]).max()), 1e-30) / 127
        row = [round(float(value) / row_scale) for value in x[r]]
        for f in range(kernel.shape[1]):
            scale = max(float(np.abs(kernel[:, f]).max()), 1e-30) / levels
            column = [round(float(value) / scale) for value in kernel[:, f]]
            total = sum(a * b for a, b in zip(row, column, strict=True))
            outputs[r, f] = total * row_scale * scale + bias[f]
    return outputs


@pytest.mark.parametrize("levels", [63, 127])
def test_definition(levels):
    x, kernel, bias = factors()
    got = numpy(int8_linear(*map(keras.ops.convert_to_tensor, (x, kernel, bias)), levels))
    np.testing.assert_allclose(got, integer_product(x, kernel, bias, levels), rtol=1e-4, atol=1e-5)


def test_error_is_that_of_eight_bits():
    x, kernel, bias = factors()
    got = numpy(int8_linear(*map(keras.ops.convert_to_tensor, (x, kernel))))
    exact = x.astype("float64") @ kernel.astype("float64")
    scale = np.abs(x).max(1)[:, None] * np.abs(kernel).max(0) * np.sqrt(D)
    error = np.abs(got - exact)
    assert (error <= scale / 100).all() and (error > scale / 1e6).mean() > 0.5


def test_weights_become_integers_with_a_scale_each():
    _, kernel, _ = factors()
    integers, scales = map(numpy, quantized_weight(keras.ops.convert_to_tensor(kernel)))
    assert np.abs(integers).max(0).tolist() == [0.0 if f == 4 else 127.0 for f in range(F)]
    np.testing.assert_array_equal(integers, np.round(integers))
    assert (np.abs(integers * scales - kernel) <= scales / 1.999).all()
