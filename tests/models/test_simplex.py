"""The projection onto the simplex, by vectors worked out by hand and by its defining inequality."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.models.branched_attention import RandomSimplex, Simplex, simplex_projection
from tests.helpers import numpy


@pytest.mark.parametrize(
    "vector,expected",
    [
        ([0.5, 0.8, -0.2], [0.35, 0.65, 0]),
        ([2.0, 0, 0], [1, 0, 0]),
        ([0.1] * 4, [0.25] * 4),
        ([0.6, 0.6, 0.6, -1], [1 / 3, 1 / 3, 1 / 3, 0]),
        ([-3.0, -1.0], [0, 1]),
        ([7.0], [1]),
    ],
)
def test_vectors_worked_out_by_hand(vector, expected):
    got = numpy(simplex_projection(np.array(vector, "float32")))
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_it_is_the_nearest_point(scale):
    rng = np.random.default_rng(3)
    for _ in range(20):
        vector = (scale * rng.normal(size=6)).astype("float32")
        point = numpy(simplex_projection(vector)).astype("float64")
        assert point.min() >= 0 and abs(point.sum() - 1) < 1e-6
        # Of a convex set the nearest point has every other one on its far side.
        corners = np.eye(6)
        assert ((corners - point) @ (vector - point)).max() <= 1e-5 * max(scale, 1)


def test_what_is_on_the_simplex_stays_bit_by_bit():
    rng = np.random.default_rng(4)
    for size in (2, 8, 16, 33):
        vector = rng.uniform(size=size).astype("float32")
        vector = numpy(simplex_projection(vector / vector.sum()))
        assert (numpy(Simplex()(vector)) == vector).all()


def test_random_starts_are_on_the_simplex_and_follow_the_seed():
    starts = [numpy(RandomSimplex(seed)((9,))) for seed in (1, 1, 2)]
    assert abs(starts[0].sum() - 1) < 1e-6 and starts[0].min() > 0
    assert (starts[0] == starts[1]).all() and (starts[0] != starts[2]).any()
    assert np.ptp(starts[0]) > 0.01
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Simplex()))
    assert isinstance(again, Simplex)
    assert ops.ndim(again(starts[2])) == 1
