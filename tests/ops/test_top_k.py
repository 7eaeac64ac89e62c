"""The largest entries in two passes, against NumPy's stable sort."""

import keras
import numpy as np
import pytest

from keras_attention.ops.top_k import chunk_size, top_k

BACKEND = keras.backend.backend()


def numpy_top_k(values, k):
    places = np.argsort(-values, axis=-1, kind="stable")[:, :k]
    return np.take_along_axis(values, places, -1), places


@pytest.mark.parametrize(
    "length, k, in_chunks", [(11, 3, False), (1200, 7, True), (1201, 5, False)]
)
def test_same_as_a_stable_sort(length, k, in_chunks):
    assert (chunk_size(length, k) is not None) == in_chunks
    values = np.random.default_rng(1).permutation(3 * length).reshape(3, length).astype("float32")
    values[1, 64:] = -np.inf  # all that counts in one chunk
    best, places = map(keras.ops.convert_to_numpy, top_k(keras.ops.convert_to_tensor(values), k))
    expected_best, expected_places = numpy_top_k(values, k)
    np.testing.assert_array_equal(best, expected_best)
    np.testing.assert_array_equal(places, expected_places)
    assert places.dtype == np.int32


@pytest.mark.backends("tensorflow", "jax")
def test_ties_go_to_the_lower_place():
    values = np.random.default_rng(2).integers(0, 40, (5, 1200)).astype("float32")
    _, places = top_k(keras.ops.convert_to_tensor(values), 9)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(places), numpy_top_k(values, 9)[1])


def test_chunks_divide_the_row():
    for length in (16000, 32000, 37000, 4096):
        size = chunk_size(length, 8)
        assert length % size == 0 and 16 <= size <= 256
    assert chunk_size(16001, 8) is None, "a prime"


@pytest.mark.backends("torch")
def test_torch_form():
    import torch

    from keras_attention.engine.torch import _top_k

    values = np.random.default_rng(3).permutation(2 * 1280).reshape(2, 1280).astype("float32")
    best, places = _top_k(torch.from_numpy(values), 6, 64)
    expected_best, expected_places = numpy_top_k(values, 6)
    np.testing.assert_array_equal(best.numpy(), expected_best)
    np.testing.assert_array_equal(places.numpy(), expected_places)
