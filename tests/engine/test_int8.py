"""Products of 8-bit integers, against loops over integers."""

import keras
import numpy as np
import pytest

from keras_attention.ops.int8 import int8_linear, quantized_weight

BACKEND = keras.backend.backend()
R, D, F = 5, 33, 19


def numpy(x):
    return keras.ops.convert_to_numpy(x)


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


@pytest.mark.skipif(BACKEND != "torch", reason="only PyTorch has a fast form")
@pytest.mark.parametrize("has_bias", [True, False])
def test_torch_form(has_bias):
    import torch

    from keras_attention.engine.torch_int8 import Int8Matrix, weight_levels

    x, kernel, bias = factors()
    bias = bias if has_bias else np.zeros(F, "float32")
    matrix = Int8Matrix(
        torch.from_numpy(kernel).t().contiguous(), torch.from_numpy(bias) if has_bias else None
    )
    got = matrix(torch.from_numpy(x)).numpy()
    expected = integer_product(x, kernel, bias, weight_levels())
    # A half may be rounded to either side: one unit in one of the factors.
    unit = np.abs(x).max(1)[:, None] * np.abs(kernel).max(0) / weight_levels()
    assert (np.abs(got - expected) <= 1.01 * unit + 1e-5).all()
    assert np.median(np.abs(got - expected) / np.maximum(unit, 1e-30)) < 1e-3
    alone = np.concatenate([matrix(torch.from_numpy(x[r : r + 1])).numpy() for r in range(R)])
    np.testing.assert_array_equal(alone, got, "a row's result is its own")


@pytest.mark.skipif(BACKEND != "torch", reason="only PyTorch has a fast form")
def test_extreme_rows_do_not_overflow():
    """All products at their largest: what 16-bit sums of 8-bit products would not hold."""
    import torch

    from keras_attention.engine.torch_int8 import Int8Matrix

    x, weight = torch.ones(2, 512), torch.ones(3, 512)
    x[1] = -1.0
    np.testing.assert_allclose(Int8Matrix(weight)(x), [[512.0] * 3, [-512.0] * 3], rtol=1e-6)


@pytest.mark.parametrize("by", ["backend", "numba"])
def test_model_in_int8_is_near(by):
    from tests.engine.test_engines import (
        crossing_histories,
        decoded,
        decoder_of,
        expected,
        model_with,
    )

    if by == "backend" and BACKEND != "torch":
        pytest.skip("only PyTorch has a fast form of its own")
    model = model_with()
    decoder = decoder_of(model, "int8", by)
    got, histories = decoded(decoder, *crossing_histories(3), length=3)
    wanted = expected(model, histories)
    assert 0.0 < np.abs(got - wanted).max() < 0.15 * np.abs(wanted).max()
