"""Masks against loops over positions."""

import numpy as np
import pytest
from keras import ops

from keras_attention.layers.masks import causal_mask, merge_masks, padding_mask, window_mask

T, S = 3, 7


def numpy(mask):
    mask = ops.convert_to_numpy(mask)
    assert mask.dtype == bool
    return mask


@pytest.mark.parametrize("pad_token_id", [0, 2])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_padding(pad_token_id, dtype):
    ids = np.array([[5, 2, 0], [0, 1, 2]], dtype)
    np.testing.assert_array_equal(numpy(padding_mask(ids, pad_token_id)), ids != pad_token_id)


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_causal(start, as_tensor):
    index = ops.convert_to_tensor(start, dtype="int32") if as_tensor else start
    expected = [[[column <= start + row for column in range(S)] for row in range(T)]]
    np.testing.assert_array_equal(numpy(causal_mask(T, S, index)), expected)


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("window", [1, 3])
def test_window(start, window):
    expected = [[[abs(column - start - row) < window for column in range(S)] for row in range(T)]]
    np.testing.assert_array_equal(numpy(window_mask(T, S, window, start)), expected)


def test_merging_is_the_logical_and():
    rows = np.array([[[True], [False], [True]]])
    columns = np.array([[[1, 0, 1, 1, 0, 1, 1]]])  # Integers mean what booleans do.
    merged = numpy(merge_masks(None, rows, columns, None))
    expected = [[[bool(r) and bool(c) for c in columns[0, 0]] for r in rows[0, :, 0]]]
    np.testing.assert_array_equal(merged, expected)
    assert merge_masks(None, None) is None
