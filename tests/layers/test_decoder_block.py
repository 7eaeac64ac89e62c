"""The decoder block against its pieces in NumPy, in users' models, and one position at a time."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import TransformerDecoderBlock
from tests.helpers import numpy
from tests.layers.block_oracle import decoder_block, randomized

B, T, S, N, K, V, D, F = 2, 4, 5, 3, 8, 7, 6, 11
rng = np.random.default_rng(16)
X = rng.normal(size=(B, T, D)).astype("float32")
MEMORY = rng.normal(size=(B, S, D)).astype("float32")
OWN_PADDING = np.array([[True] * 4, [True] * 2 + [False] * 2])
PADDING = np.array([[True] * 5, [True] * 3 + [False] * 2])
OWN, CROSS = np.ones((B, T, T), bool), np.ones((B, T, S), bool)


def block(**kwargs):
    return TransformerDecoderBlock(N, F, **{"dropout": 0.0, **kwargs})


def expected(layer, own=OWN, cross=CROSS, x=X, memory=MEMORY):
    return decoder_block(layer, x.astype("float64"), memory.astype("float64"), own, cross)


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"key_dim": K, "value_dim": V, "use_attention_bias": True}]
)
def test_equals_the_paper_in_numpy(normalize_first, options):
    layer = randomized(block(normalize_first=normalize_first, **options), X.shape, MEMORY.shape)
    got = layer(X, MEMORY, encoder_padding_mask=PADDING, return_attention_scores=True)
    wanted = expected(layer, cross=CROSS & PADDING[:, None])
    for mine, oracles, tolerance in zip(got, wanted, (1e-4, 5e-6, 5e-6), strict=True):
        np.testing.assert_allclose(numpy(mine), oracles, atol=tolerance)


def test_all_masks_are_merged():
    layer = randomized(block(), X.shape, MEMORY.shape)
    own, cross = rng.random((B, T, T)) < 0.7, rng.random((B, T, S)) < 0.6
    got = layer(
        X,
        MEMORY,
        decoder_padding_mask=OWN_PADDING,
        encoder_padding_mask=PADDING,
        decoder_attention_mask=own,
        encoder_attention_mask=cross,
    )
    wanted = expected(layer, own & OWN_PADDING[:, None], cross & PADDING[:, None])[0]
    np.testing.assert_allclose(numpy(got), wanted, atol=1e-4)


def test_implicit_keras_masks_in_a_functional_model():
    own_ids, ids = (
        np.array([[3, 4, 5, 6], [8, 9, 0, 0]]),
        np.array([[3, 4, 5, 6, 7], [8, 9, 3, 0, 0]]),
    )
    embedding = keras.layers.Embedding(10, D, mask_zero=True)
    layer = randomized(block(), X.shape, MEMORY.shape)
    inputs = keras.Input((T,), dtype="int32"), keras.Input((S,), dtype="int32")
    x, memory = (embedding(ids) for ids in inputs)
    model = keras.Model(inputs, [x, memory, layer(x, memory)])
    x, memory, got = model([own_ids, ids])
    wanted = expected(
        layer, OWN & OWN_PADDING[:, None], CROSS & PADDING[:, None], numpy(x), numpy(memory)
    )[0]
    np.testing.assert_allclose(numpy(got)[OWN_PADDING], wanted[OWN_PADDING], atol=1e-4)
    np.testing.assert_array_equal(numpy(got._keras_mask).astype(bool), OWN_PADDING)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_one_position_at_a_time_equals_all_at_once(normalize_first):
    layer = randomized(
        block(key_dim=K, value_dim=V, normalize_first=normalize_first), X.shape, MEMORY.shape
    )
    wanted = expected(layer, cross=CROSS & PADDING[:, None])
    memory = layer.project_memory(ops.convert_to_tensor(MEMORY))
    length = T + 3  # Rows that are not written yet must not be seen.
    cache = {"key": np.full((B, length, N, K), 9.0, "float32"),
             "value": np.full((B, length, N, V), 9.0, "float32")}  # fmt: skip
    for t in range(T):
        output, own, cross, cache = layer(
            X[:, t : t + 1], encoder_padding_mask=PADDING, memory=memory, cache=cache,
            start_index=t, return_attention_scores=True,
        )  # fmt: skip
        np.testing.assert_allclose(numpy(output)[:, 0], wanted[0][:, t], atol=1e-4)
        np.testing.assert_allclose(
            numpy(own)[:, :, 0, : t + 1], wanted[1][:, :, t, : t + 1], atol=1e-5
        )
        np.testing.assert_allclose(numpy(cross)[:, :, 0], wanted[2][:, :, t], atol=1e-5)
        assert (numpy(own)[..., t + 1 :] == 0).all()


def test_beams_share_the_memory_of_their_sentence():
    beams = 3
    layer = randomized(block(), X.shape, MEMORY.shape)
    x = rng.normal(size=(B * beams, T, D)).astype("float32")
    got = layer(
        x, memory=layer.project_memory(ops.convert_to_tensor(MEMORY)), encoder_padding_mask=PADDING
    )
    wanted = expected(
        layer,
        np.ones((B * beams, T, T), bool),
        np.repeat(CROSS & PADDING[:, None], beams, 0),
        x,
        np.repeat(MEMORY, beams, 0),
    )[0]
    np.testing.assert_allclose(numpy(got), wanted, atol=1e-4)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_close_and_stays_so(policy):
    layer = randomized(block(dtype=policy), X.shape, MEMORY.shape)
    got = layer(X, MEMORY, encoder_padding_mask=PADDING, return_attention_scores=True)
    for x in got:
        assert keras.backend.standardize_dtype(x.dtype) == policy.removeprefix("mixed_")
    wanted = expected(layer, cross=CROSS & PADDING[:, None])[0]
    np.testing.assert_allclose(numpy(got[0]), wanted, atol=0.2)
    nothing = layer(X * 100, MEMORY, encoder_padding_mask=np.zeros((B, S), bool))
    assert np.isfinite(numpy(nothing)).all()


@pytest.mark.backends("torch")
def test_without_a_source_it_says_what_is_missing():
    layer = randomized(block(), X.shape, MEMORY.shape)
    with pytest.raises(ValueError, match="needs `encoder_sequence` or `memory`"):
        layer(X)
