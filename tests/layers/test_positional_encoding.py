"""Positional encodings against the numbers of the paper's formulas."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import PositionalEncoding
from keras_attention.layers import sinusoid
from tests import oracle

VECTORS = {
    ("interleaved", 1): [0.84147098, 0.54030231, 0.09983342, 0.99500417,
                         0.00999983, 0.99995000, 0.00100000, 0.99999950],
    ("halves", 1): [0.84147098, 0.04639922, 0.00215443, 0.00010000,
                    0.54030231, 0.99892298, 0.99999768, 1.00000000],
    ("interleaved", 3): [0.14112001, -0.98999250, 0.29552021, 0.95533649,
                         0.02999550, 0.99955003, 0.00300000, 0.99999550],
    ("halves", 3): [0.14112001, 0.13879810, 0.00646326, 0.00030000,
                    -0.98999250, 0.99032070, 0.99997911, 0.99999996],
}  # fmt: skip


@pytest.mark.parametrize("layout,position", VECTORS)
def test_vectors(layout, position):
    np.testing.assert_allclose(
        sinusoid(np.array([position]), 8, layout)[0], VECTORS[layout, position], atol=6e-9 + 6e-8
    )


def test_equals_the_formula_column_by_column():
    table = sinusoid(np.arange(300), 14)
    for pos in (0, 1, 17, 299):
        np.testing.assert_allclose(table[pos], oracle.position(pos, 14), atol=1e-7)


@pytest.mark.parametrize(
    "layout,product", [("interleaved", 187.86499728), ("halves", 188.13056069)]
)
def test_invariants(layout, product):
    table = sinusoid(np.arange(100), 512, layout).astype("float64")
    np.testing.assert_allclose((table**2).sum(-1), 256.0, rtol=1e-6)
    np.testing.assert_allclose((table[:-7] * table[7:]).sum(-1), product, rtol=1e-6)


def test_an_odd_width_ends_in_zeros_in_halves():
    assert (sinusoid(np.arange(5), 7, "halves")[:, -1] == 0).all()
    outputs = PositionalEncoding("halves")(np.zeros((1, 4, 7), "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(outputs)[0], sinusoid(np.arange(4), 7, "halves"), atol=1e-6
    )


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("width", [8, 9])
def test_positions_known_only_in_the_graph_are_the_same(layout, width):
    layer = PositionalEncoding(layout)
    x = np.zeros((2, 3, width), "float32")
    start = ops.convert_to_tensor(200, dtype="int32")
    expected = sinusoid(np.arange(200, 203), width, layout)
    for outputs in (layer(x, start_index=start), layer(x, start_index=200)):
        np.testing.assert_allclose(ops.convert_to_numpy(outputs)[1], expected, atol=5e-5)


def test_sinusoids_have_no_longest_sequence():
    outputs = PositionalEncoding(max_length=4)(np.zeros((1, 6, 8), "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(outputs)[0], sinusoid(np.arange(6), 8), atol=1e-6
    )


def test_learned_positions_are_added_and_counted():
    layer = PositionalEncoding("learned", max_length=6)
    x = np.ones((2, 3, 5), "float32")
    outputs = ops.convert_to_numpy(layer(x, start_index=2))
    assert layer.count_params() == 6 * 5
    np.testing.assert_allclose(outputs[1] - 1.0, layer.get_weights()[0][2:5], atol=1e-6)


def test_learned_positions_end_somewhere():
    layer = PositionalEncoding("learned", max_length=6)
    with pytest.raises(ValueError, match="max_length=7"):
        layer(np.ones((2, 7, 5), "float32"))
    with pytest.raises(ValueError, match="max_length=8"):
        layer(np.ones((2, 3, 5), "float32"), start_index=5)


def test_in_a_functional_model_with_a_free_length():
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, PositionalEncoding()(inputs))
    got = ops.convert_to_numpy(model(np.zeros((1, 5, 8), "float32")))
    np.testing.assert_allclose(got[0], sinusoid(np.arange(5), 8), atol=1e-6)
