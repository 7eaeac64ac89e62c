"""The encoder block against its pieces in NumPy, and in users' models."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import TransformerEncoderBlock
from tests.helpers import numpy
from tests.layers.block_oracle import encoder_block, randomized

B, S, N, K, V, D, F = 2, 5, 3, 4, 7, 6, 11
rng = np.random.default_rng(15)
X = rng.normal(size=(B, S, D)).astype("float32")
PADDING = np.array([[True] * 5, [True] * 3 + [False] * 2])
EVERYWHERE = np.ones((B, S, S), bool)


def block(**kwargs):
    return TransformerEncoderBlock(N, F, **{"dropout": 0.0, **kwargs})


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"key_dim": K, "value_dim": V, "use_attention_bias": True}]
)
def test_equals_the_paper_in_numpy(normalize_first, options):
    layer = randomized(block(normalize_first=normalize_first, **options), X.shape)
    outputs, scores = layer(X, padding_mask=PADDING, return_attention_scores=True)
    expected = encoder_block(layer, X.astype("float64"), EVERYWHERE & PADDING[:, None])
    np.testing.assert_allclose(numpy(outputs), expected[0], atol=5e-5)
    np.testing.assert_allclose(numpy(scores), expected[1], atol=5e-6)


@pytest.mark.parametrize("with_padding", [False, True])
def test_an_attention_mask_is_merged_with_the_padding(with_padding):
    layer = randomized(block(), X.shape)
    mask = rng.random((B, S, S)) < 0.6
    got = layer(X, attention_mask=mask, padding_mask=PADDING if with_padding else None)
    allowed = mask & PADDING[:, None] if with_padding else mask
    expected = encoder_block(layer, X.astype("float64"), allowed)[0]
    np.testing.assert_allclose(numpy(got), expected, atol=5e-5)


@pytest.mark.parametrize(("normalize_first", "with_mask"), [(False, True), (True, False)])
def test_implicit_keras_masks_in_a_functional_model(normalize_first, with_mask):
    ids = np.array([[3, 4, 5, 6, 7], [8, 9, 3, 0, 0]])
    embedding = keras.layers.Embedding(10, D, mask_zero=True)
    layer = randomized(block(normalize_first=normalize_first), X.shape)
    inputs, mask_input = keras.Input((None,), dtype="int32"), keras.Input((S, S), dtype="bool")
    mask = rng.random((B, S, S)) < 0.7
    embedded = embedding(inputs)
    outputs = layer(embedded, attention_mask=mask_input if with_mask else None)
    model = keras.Model([inputs, mask_input], [embedded, outputs])
    x, got = model([ids, mask])
    allowed = EVERYWHERE & PADDING[:, None] & (mask if with_mask else True)
    expected = encoder_block(layer, numpy(x).astype("float64"), allowed)[0]
    np.testing.assert_allclose(numpy(got)[PADDING], expected[PADDING], atol=5e-5)
    # And the mask goes on to the next layer.
    np.testing.assert_array_equal(numpy(got._keras_mask).astype(bool), PADDING)


@pytest.mark.parametrize(
    ("policy", "normalize_first"), [("mixed_bfloat16", False), ("mixed_float16", True)]
)
def test_mixed_precision_is_close_and_stays_so(policy, normalize_first):
    layer = randomized(block(dtype=policy, normalize_first=normalize_first), X.shape)
    outputs, scores = layer(X, padding_mask=PADDING, return_attention_scores=True)
    for x in (outputs, scores):
        assert keras.backend.standardize_dtype(x.dtype) == policy.removeprefix("mixed_")
    expected = encoder_block(layer, X.astype("float64"), EVERYWHERE & PADDING[:, None])
    np.testing.assert_allclose(numpy(outputs), expected[0], atol=0.15)
    nothing = numpy(layer(X * 100, padding_mask=np.zeros((B, S), bool)))
    assert np.isfinite(nothing).all()


def test_trains_in_fit():
    """A model, compiled and not: `test_transformer.py`."""
    # Otherwise JAX compiles each operation by itself, for minutes; torch.compile needs a C++ toolchain.
    jit_compile = keras.backend.backend() == "jax"
    inputs = keras.Input((S, D))
    model = keras.Model(inputs, block(dropout=0.1, attention_dropout=0.1)(inputs))
    model.compile(keras.optimizers.Adam(0.02), "mse", jit_compile=jit_compile)
    target = ops.convert_to_numpy(keras.random.normal((B, S, D)))
    losses = model.fit(X, target, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
