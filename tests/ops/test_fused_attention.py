"""The fused kernel against the definition, masks and empty rows included."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import MultiHeadAttention
from keras_attention.ops.operations import dot_product_attention
from tests.gradients import gradients
from tests.helpers import numpy

B, T, S, N, K, V, D = 2, 3, 5, 4, 8, 6, 10
rng = np.random.default_rng(5)
QUERY, KEY, VALUE, WEIGHTS = (
    rng.normal(size=shape).astype("float32")
    for shape in ((B, T, N, K), (B, S, N, K), (B, S, N, V), (B, T, N, V))
)
MASK = rng.random((B, 1, T, S)) < 0.6
MASK[1, 0, 2] = False  # May attend to nothing.
ON_TORCH = keras.backend.backend() == "torch"
only_where_fused = pytest.mark.skipif(not ON_TORCH, reason="fused on a CPU on PyTorch alone")


@only_where_fused
@pytest.mark.parametrize("mask", [None, MASK, MASK[:1], MASK[0, 0]])
def test_equals_the_definition_with_its_gradients(mask):
    def plain(query, key, value):
        full = None if mask is None else np.broadcast_to(mask, (B, N, T, S))
        return dot_product_attention(query, key, value, full, K**-0.5)[0]

    def fused(query, key, value):
        converted = None if mask is None else ops.convert_to_tensor(mask)
        return dot_product_attention(query, key, value, converted, K**-0.5, flash=True)[0]

    inputs = [ops.convert_to_tensor(x) for x in (QUERY, KEY, VALUE)]
    np.testing.assert_allclose(numpy(fused(*inputs)), numpy(plain(*inputs)), atol=1e-6)
    expected, got = (
        gradients(lambda *x: ops.sum(f(*x) * ops.convert_to_tensor(WEIGHTS)), QUERY, KEY, VALUE)  # noqa: B023
        for f in (plain, fused)
    )
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@only_where_fused
def test_half_precision_keeps_its_dtype_and_empty_rows_give_zeros():
    inputs = [ops.cast(x, "bfloat16") for x in (QUERY, KEY, VALUE)]
    mask = ops.convert_to_tensor(MASK)
    outputs, weights = dot_product_attention(*inputs, mask, K**-0.5, flash=True)
    assert weights is None
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    expected = dot_product_attention(QUERY, KEY, VALUE, ops.convert_to_tensor(MASK), K**-0.5)[0]
    np.testing.assert_allclose(numpy(outputs), numpy(expected), atol=0.03)
    assert (numpy(outputs)[1, 2] == 0.0).all()


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    ("dtype", "has_dot_products", "longest", "is_fused"),
    [
        ("bfloat16", True, S, False),
        ("bfloat16", True, S - 1, True),
        ("bfloat16", False, S, True),
        ("float32", True, S, True),
    ],
)
def test_short_texts_in_bfloat16_are_left_to_the_parts(
    monkeypatch, dtype, has_dot_products, longest, is_fused
):
    from keras_attention.ops.backends import torch as kernels

    monkeypatch.setattr(kernels, "has_dot_products", lambda: has_dot_products)
    monkeypatch.setattr(kernels, "LONGEST_BY_PARTS", longest)
    monkeypatch.setattr("keras_attention.ops.reference.SMALLEST_WIDTH", 1)
    inputs, mask = [ops.cast(x, dtype) for x in (QUERY, KEY, VALUE)], ops.convert_to_tensor(MASK)
    outputs, weights = dot_product_attention(*inputs, mask, K**-0.5, flash=None)
    assert (weights is None) == is_fused
    exact = [ops.convert_to_tensor(x) for x in (QUERY, KEY, VALUE)]
    expected = dot_product_attention(*exact, mask, K**-0.5)[0]
    np.testing.assert_allclose(numpy(outputs), numpy(expected), atol=0.03)


@only_where_fused
def test_the_layer_is_fused_on_request_and_still_shows_its_scores():
    plain, fused = (MultiHeadAttention(N, K, flash_attention=use, seed=1) for use in (None, True))
    query, value = QUERY.reshape(B, T, -1)[..., :D], VALUE.reshape(B, S, -1)[..., :D]
    for layer in (plain, fused):
        layer.build(query.shape, value.shape)
    fused.set_weights(plain.get_weights())
    expected, scores = plain(query, value, attention_mask=MASK[:, 0], return_attention_scores=True)
    np.testing.assert_allclose(
        numpy(fused(query, value, attention_mask=MASK[:, 0])), numpy(expected), atol=1e-6
    )
    got = fused(query, value, attention_mask=MASK[:, 0], return_attention_scores=True)
    np.testing.assert_allclose(numpy(got[0]), numpy(expected), atol=1e-6)
    np.testing.assert_allclose(numpy(got[1]), numpy(scores), atol=1e-6)


@pytest.mark.skipif(ON_TORCH, reason="PyTorch has it")
def test_without_a_fused_kernel_the_plain_way_serves_unless_it_is_demanded():
    inputs = [ops.convert_to_tensor(x) for x in (QUERY, KEY, VALUE)]
    outputs, weights = dot_product_attention(*inputs, flash=None)
    assert weights is not None
    np.testing.assert_array_equal(numpy(outputs), numpy(dot_product_attention(*inputs)[0]))
    with pytest.raises(ValueError, match="flash_attention=None"):
        dot_product_attention(*inputs, flash=True)


@pytest.mark.backends("jax")
@pytest.mark.parametrize(
    ("dtype", "lengths", "widths", "is_fused"),
    [
        ("bfloat16", (4, 6), (8, 8), True),
        ("float16", (6, 2), (16, 16), True),
        ("float32", (4, 6), (8, 8), False),
        ("bfloat16", (3, 6), (8, 8), False),
        ("bfloat16", (4, 5), (8, 8), False),
        ("bfloat16", (4, 6), (8, 16), False),
        ("bfloat16", (4, 6), (12, 12), False),
        ("bfloat16", (4, 6), (136, 136), False),
    ],
)
def test_jax_asks_cudnn_for_what_it_takes_and_for_nothing_else(
    dtype, lengths, widths, is_fused, monkeypatch
):
    import jax

    (length, positions), (width, value_width), asked = lengths, widths, []
    random = np.random.default_rng(3)
    query, key, value = (
        ops.cast(random.normal(size=(B, *shape)), dtype)
        for shape in ((length, N, width), (positions, N, width), (positions, N, value_width))
    )
    mask = random.random((1, 1, 1, positions)) < 0.6
    expected = dot_product_attention(query, key, value, mask, 0.3, flash=False)[0]
    compute = jax.nn.dot_product_attention

    def cudnn(*tensors, mask, scale, implementation):
        assert implementation == "cudnn" and mask.shape == (1, 1, length, positions)
        asked.append(True)
        return compute(*tensors, mask=mask, scale=scale)

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax.nn, "dot_product_attention", cudnn)
    outputs, weights = dot_product_attention(query, key, value, mask, 0.3, flash=None)
    assert bool(asked) == is_fused == (weights is None)
    np.testing.assert_allclose(
        numpy(ops.cast(outputs, "float32")), numpy(ops.cast(expected, "float32")), atol=0.03
    )
    if not is_fused:
        with pytest.raises(ValueError, match="half precision, for even lengths"):
            dot_product_attention(query, key, value, mask, 0.3, flash=True)
