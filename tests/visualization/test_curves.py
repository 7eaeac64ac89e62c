"""The plots of the recipe show the numbers that they were given."""

import io

import numpy as np
import pytest

from keras_attention.visualization import learning_rate_figure, positional_encoding_figure

pytestmark = pytest.mark.backends("tensorflow")


def test_positional_encoding():
    encoding = np.random.default_rng(0).normal(size=(7, 4))
    axes = positional_encoding_figure(encoding).axes[0]
    image = axes.images[0]
    np.testing.assert_allclose(image.get_array(), encoding, rtol=1e-6)
    low, high = image.get_clim()
    assert low == -high  # white is zero
    assert high == pytest.approx(np.abs(encoding).max())


@pytest.mark.parametrize("shape", [(7,), (1, 7, 4), (0, 4)])
def test_positional_encoding_of_another_shape(shape):
    with pytest.raises(ValueError, match=r"Received: shape \("):
        positional_encoding_figure(np.zeros(shape))


def test_learning_rate_counts_updates_from_one():
    """Update n is the one that Keras makes with `iterations` = n - 1."""
    figure = learning_rate_figure({"up": lambda i: 0.5 * i, "down": lambda i: 9.0 - i}, steps=6)
    up, down = figure.axes[0].lines
    np.testing.assert_array_equal(up.get_xdata(), [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(up.get_ydata(), [0, 0.5, 1, 1.5, 2, 2.5])
    np.testing.assert_array_equal(down.get_ydata(), [9, 8, 7, 6, 5, 4])
    assert [up.get_label(), down.get_label()] == ["up", "down"]


def test_learning_rate_of_a_long_training_is_sampled_to_its_end():
    figure = learning_rate_figure({"rate": lambda i: i}, steps=100_000)
    updates = figure.axes[0].lines[0].get_xdata()
    assert len(updates) <= 500
    assert (updates[0], updates[-1]) == (1, 100_000)


def test_a_name_with_dollars_is_no_formula():
    figure = learning_rate_figure({"$$": lambda i: 1.0, r"$\no$": lambda i: 2.0}, steps=3)
    figure.savefig(io.BytesIO())
