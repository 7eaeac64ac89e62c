"""Masks against loops over positions."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    SSRU,
    MultiHeadAttention,
    TransformerDecoderBlock,
    TransformerEncoder,
    TransformerEncoderBlock,
)
from keras_attention.layers.masks import causal_mask, merge_masks, padding_mask, window_mask

T, S = 3, 7


def boolean(mask):
    mask = ops.convert_to_numpy(mask)
    assert mask.dtype == bool
    return mask


@pytest.mark.parametrize("pad_token_id", [0, 2, 258])  # 258 is 2 in uint8
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_padding(pad_token_id, dtype):
    ids = np.array([[5, 2, 0], [0, 1, 2]], dtype)
    np.testing.assert_array_equal(boolean(padding_mask(ids, pad_token_id)), ids != pad_token_id)


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_causal(start, as_tensor):
    index = ops.convert_to_tensor(start, dtype="int32") if as_tensor else start
    expected = [[[column <= start + row for column in range(S)] for row in range(T)]]
    np.testing.assert_array_equal(boolean(causal_mask(T, S, index)), expected)


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("window", [1, 3])
def test_window(start, window):
    expected = [[[abs(column - start - row) < window for column in range(S)] for row in range(T)]]
    np.testing.assert_array_equal(boolean(window_mask(T, S, window, start)), expected)


def test_merging_is_the_logical_and():
    rows = np.array([[[True], [False], [True]]])
    columns = np.array([[[1, 0, 1, 1, 0, 1, 1]]])  # Integers mean what booleans do.
    merged = boolean(merge_masks(None, rows, columns, None))
    expected = [[[bool(r) and bool(c) for c in columns[0, 0]] for r in rows[0, :, 0]]]
    np.testing.assert_array_equal(merged, expected)
    assert merge_masks(None, None) is None


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("as_list", [False, True])
def test_masks_of_any_rank_meet_padding(rank, as_list):
    """Of each head or of all; the same as the equal mask of four axes, and a list as an array."""
    random = np.random.default_rng(4)
    x, memory = random.standard_normal((2, T, 8)), random.standard_normal((2, S, 8))
    layer = MultiHeadAttention(4, 2)
    full = random.random({2: (T, S), 3: (2, T, S), 4: (2, 4, T, S)}[rank]) < 0.6
    padding = random.random((2, S)) < 0.7
    _, scores = layer(
        x,
        memory,
        value_mask=padding.tolist() if as_list else padding,
        attention_mask=full.tolist() if as_list else full,
        return_attention_scores=True,
    )
    seen = np.broadcast_to(full[:, None] if rank == 3 else full, (2, 4, T, S))
    seen = seen & padding[:, None, None]
    np.testing.assert_array_equal(ops.convert_to_numpy(scores) > 0, seen)


ADDITIVE = np.where(np.tri(T, S), 0.0, -1e9).astype("float32")
# As `(1 - mask) * -1_000_000_000` is, of a mask of integers.
IN_INTEGERS = ADDITIVE.astype("int32")


@pytest.mark.parametrize(
    "mask", [ADDITIVE, ADDITIVE.tolist(), IN_INTEGERS], ids=["array", "list", "integers"]
)
def test_additive_masks_are_refused(mask):
    x, memory = np.ones((2, T, 4), "float32"), np.ones((2, S, 4), "float32")
    for layer, arguments in (
        (MultiHeadAttention(2, 2), {"attention_mask": mask}),
        (TransformerDecoderBlock(2, 5), {"encoder_attention_mask": mask}),
    ):
        with pytest.raises(
            ValueError, match=f"`{[*arguments][0]}` must be boolean.*from -1e.09 to 0"
        ):
            layer(x, memory, **arguments)


def test_an_additive_tensor_gives_nan_and_one_of_zeros_and_ones_is_boolean():
    rng = np.random.default_rng(0)
    x, memory = (rng.normal(size=(2, length, 4)).astype("float32") for length in (T, S))
    layer = MultiHeadAttention(2, 2)
    additive = ops.convert_to_tensor(ADDITIVE)[None]
    in_integers = ops.convert_to_tensor(IN_INTEGERS)[None]
    for called, arguments in (
        (layer, {"attention_mask": additive}),
        (layer, {"attention_mask": in_integers}),
        (layer, {"query_mask": additive[:, 0, :T]}),
        (layer, {"value_mask": additive[:, 0]}),
        (layer, {"key_mask": in_integers[:, 0]}),
        (TransformerDecoderBlock(2, 5), {"encoder_padding_mask": additive[:, 0]}),
        (TransformerDecoderBlock(2, 5), {"decoder_padding_mask": additive[:, 0, :T]}),
    ):
        assert np.isnan(ops.convert_to_numpy(called(x, memory, **arguments))).all(), arguments
    for called in (TransformerEncoderBlock(2, 5), TransformerEncoder(1, 5, 2)):
        assert np.isnan(ops.convert_to_numpy(called(memory, padding_mask=additive[:, 0]))).all()
    seen = ADDITIVE == 0
    expected = ops.convert_to_numpy(layer(x, memory, attention_mask=seen[None]))
    for mask in (seen.astype("float32"), ops.convert_to_tensor(seen.astype("float32"))):
        got = ops.convert_to_numpy(layer(x, memory, attention_mask=mask[None]))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    ("layer", "name", "between"),
    [
        (TransformerEncoderBlock(2, 5, dropout=0.0), "padding_mask", []),
        (TransformerEncoder(1, 5, 2, dropout=0.0), "padding_mask", []),
        (TransformerDecoderBlock(2, 5, dropout=0.0), "decoder_padding_mask", [np.ones((2, S, 4))]),
        (SSRU(), "mask", [None]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mask_by_position_in_a_functional_model(layer, name, between):
    x = np.random.default_rng(5).normal(size=(2, T, 4)).astype("float32")
    seen = np.array([[True, True, False], [True, False, False]])
    expected = layer(x, *between, **{name: seen})
    inputs, mask = keras.Input((T, 4)), keras.Input((T,), dtype="bool")
    model = keras.Model([inputs, mask], layer(inputs, *between, mask))
    got = ops.convert_to_numpy(model([x, seen]))
    np.testing.assert_allclose(got, ops.convert_to_numpy(expected), atol=1e-6)
    assert np.abs(got - ops.convert_to_numpy(layer(x, *between))).max() > 1e-3


@pytest.mark.backends("torch")
def test_masks_by_position_beside_those_that_tensors_carry():
    """Keras gives a layer the masks of its tensors by name."""
    layer, words = MultiHeadAttention(2, 3), np.array([[5, 2, 7], [4, 0, 0]])
    inputs = keras.Input((T,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    model = keras.Model(inputs, layer(x, x, x, None, None, None, None))
    vectors = model.layers[1](words)
    expected = layer(vectors, vectors, key_mask=words != 0)
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(words))[:, 0], ops.convert_to_numpy(expected)[:, 0], atol=1e-6
    )
