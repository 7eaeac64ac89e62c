"""Masked softmax and scaled dot-product attention against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.operations import dot_product_attention
from keras_attention.ops.reference import masked_softmax
from tests import oracle
from tests.gradients import gradients
from tests.helpers import numpy

B, T, S, N, K, V = 2, 3, 5, 4, 7, 6
rng = np.random.default_rng(8)
SCORES = (3 * rng.normal(size=(B, N, T, S))).astype("float32")


def softmax_of_allowed(scores, allowed):
    """One row of any shape: exponentials of the allowed scores over their sum; zeros elsewhere."""
    result = np.zeros_like(scores)
    if allowed.any():
        result[allowed] = oracle.softmax(scores[allowed])
    return result


def test_softmax_over_the_allowed_positions():
    mask = rng.random((B, 1, T, S)) < 0.5
    mask[1, 0, 2], mask[0, 0, 1] = False, True
    allowed = np.broadcast_to(mask, SCORES.shape)
    got = numpy(masked_softmax(ops.convert_to_tensor(SCORES), mask))
    for index in np.ndindex(B, N, T):
        expected = softmax_of_allowed(SCORES[index], allowed[index])
        np.testing.assert_allclose(got[index], expected, atol=1e-6)
    assert (got[~allowed] == 0.0).all()


@pytest.mark.parametrize("masked", [False, True])
def test_softmax_over_several_axes(masked):
    allowed = rng.random(SCORES.shape) < 0.5 if masked else np.ones(SCORES.shape, bool)
    if masked:
        allowed[1, 3] = False
    got = numpy(
        masked_softmax(ops.convert_to_tensor(SCORES), allowed if masked else None, (-2, -1))
    )
    for index in np.ndindex(B, N):
        expected = softmax_of_allowed(SCORES[index], allowed[index])
        np.testing.assert_allclose(got[index], expected, atol=1e-6)


def test_softmax_over_another_axis():
    got = numpy(masked_softmax(ops.convert_to_tensor(SCORES), axis=1))
    for b, t, s in np.ndindex(B, T, S):
        np.testing.assert_allclose(got[b, :, t, s], oracle.softmax(SCORES[b, :, t, s]), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("axis", [-1, (-2, -1)])
def test_large_scores_and_rows_without_positions_stay_finite(dtype, axis):
    scores = ops.cast(
        SCORES * 5000.0, dtype
    )  # The largest are some 50,000: float16 ends at 65,504.
    mask = np.ones((B, N, T, S), bool)
    mask[0] = False
    got = masked_softmax(scores, mask, axis)
    assert keras.backend.standardize_dtype(got.dtype) == dtype
    got = numpy(got)
    assert np.isfinite(got).all() and (got[0] == 0.0).all() and got[1].max() > 0.9


@pytest.mark.parametrize("axis", [-1, (-2, -1)])
def test_gradients_of_masked_positions_are_zero_and_none_is_nan(axis):
    mask = rng.random((B, N, T, S)) < 0.5
    mask[0] = False
    weights = rng.normal(size=SCORES.shape).astype("float32")

    def total(scores):
        return ops.sum(masked_softmax(scores, mask, axis) * ops.convert_to_tensor(weights))

    (gradient,) = gradients(total, SCORES)
    assert np.isfinite(gradient).all()
    assert (gradient[~mask] == 0.0).all() and np.abs(gradient[mask]).max() > 0.01


def test_attention_equals_one_query_at_a_time():
    query, key, value = (
        rng.normal(size=shape).astype("float32")
        for shape in ((B, T, N, K), (B, S, N, K), (B, S, N, V))
    )
    mask = rng.random((B, 1, T, S)) < 0.6
    outputs, weights = dot_product_attention(
        *map(ops.convert_to_tensor, (query, key, value)), mask=mask, scale=K**-0.5
    )
    for b, t, n in np.ndindex(B, T, N):
        expected = oracle.attend(query[b, t, n], key[b, :, n], value[b, :, n], mask[b, 0, t])
        np.testing.assert_allclose(numpy(outputs)[b, t, n], expected[0], atol=2e-6)
        np.testing.assert_allclose(numpy(weights)[b, n, t], expected[1], atol=1e-6)


def test_dropout_acts_between_the_weights_and_the_values():
    query, key, value = (ops.ones((B, size, N, K)) for size in (T, S, S))
    outputs, weights = dot_product_attention(query, key, value, dropout=lambda weights: weights * 3)
    np.testing.assert_allclose(numpy(outputs), np.full((B, T, N, K), 3.0), rtol=1e-6)
    np.testing.assert_allclose(numpy(weights), np.full((B, N, T, S), 1 / S), rtol=1e-6)


@pytest.mark.filterwarnings("error::UserWarning")
def test_one_position_gets_all_weight_and_no_warning():
    scores = ops.convert_to_tensor(SCORES[..., :1])
    mask = ops.convert_to_tensor(np.arange(scores.shape[-2])[:, None] > 0)
    np.testing.assert_array_equal(numpy(masked_softmax(scores)), np.ones(scores.shape))
    expected = np.broadcast_to(np.arange(scores.shape[-2])[:, None] > 0, scores.shape)
    np.testing.assert_array_equal(numpy(masked_softmax(scores, mask)), expected)
