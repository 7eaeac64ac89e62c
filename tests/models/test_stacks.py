"""The encoder over vectors against NumPy, and both halves against the whole `Transformer`."""

import numpy as np
import pytest

from keras_attention import Transformer, TransformerDecoder, TransformerEncoder
from tests import oracle
from tests.helpers import numpy
from tests.layers.block_oracle import encoder_block, randomized

B, S, T, N, D, F, V, L = 2, 5, 4, 3, 6, 11, 13, 2
rng = np.random.default_rng(41)
X = rng.normal(size=(B, S, D)).astype("float32")
PADDING = np.array([[True] * 5, [True] * 3 + [False] * 2])
IDS = np.array([[0, 5, 7, 2], [0, 12, 0, 0]])


def encoder(**options):
    return TransformerEncoder(L, F, N, **{"dropout": 0.0, **options})


def decoder(**options):
    return TransformerDecoder(V, L, D, F, N, **{"dropout": 0.0, **options})


def whole(**options):
    return Transformer(V, L, D, F, N, **{"dropout": 0.0, **options})


def expected(layer, allowed):
    """The stack in NumPy: the inputs and their positions, block after block, a normalisation."""
    x = X + np.array([oracle.position(place, D) for place in range(S)])
    scores = []
    for block in layer.encoder_blocks:
        x, weights = encoder_block(block, x, allowed)
        scores.append(weights)
    if layer.final_normalization:
        norm = layer.encoder_normalization
        gain, bias = (numpy(weight).astype("float64") for weight in (norm.gamma, norm.beta))
        x = oracle.layer_norm(x, gain, bias, 1e-6)
    return x, scores


@pytest.mark.parametrize("options", [{}, {"normalize_first": True}, {"final_normalization": True}])
def test_equals_the_paper_in_numpy(options):
    layer = randomized(encoder(**options), X.shape)
    assert len(layer.encoder_blocks) == L
    wanted, weights = expected(layer, np.ones((B, S, S), bool) & PADDING[:, None])
    np.testing.assert_allclose(numpy(layer(X, padding_mask=PADDING)), wanted, atol=1e-4)
    got, scores = layer(X, padding_mask=PADDING, return_attention_scores=True)
    np.testing.assert_allclose(numpy(got), wanted, atol=1e-4)
    np.testing.assert_allclose([numpy(x) for x in scores], weights, atol=1e-5)


@pytest.mark.backends("torch")
def test_a_switch_given_by_position_is_not_called_a_mask():
    """Behind the last tensor of `call` comes `training`, which Keras wants by name."""
    layer = encoder()
    with pytest.raises(ValueError, match="`training` should be passed as a keyword argument: tra"):
        layer(X, PADDING, None, True)
    with pytest.raises(ValueError, match="`training` must be True, False or None. Received"):
        layer(X, PADDING, None, PADDING)


def test_a_causal_mask_and_a_window_restrict_it():
    layer = randomized(encoder(attention_window=2), X.shape)
    unrestricted = randomized(encoder(), X.shape)  # A spec says nothing of a window.
    copy(unrestricted, layer)
    places = np.arange(S)
    distance = places[:, None] - places
    seen = (distance >= 0) & (distance < 2)
    wanted, _ = expected(unrestricted, np.broadcast_to(seen, (B, S, S)))
    got = layer(X, attention_mask=np.tri(S, dtype=bool)[None])
    np.testing.assert_allclose(numpy(got), wanted, atol=1e-4)


def copy(ours, theirs):
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        mine.assign(other)


@pytest.mark.parametrize("options", [{}, {"normalize_first": True, "decoder_cell": "ssru"}])
def test_the_halves_make_the_whole(options):
    """With the weights of a `Transformer`, at once and step by step."""
    both = randomized(whole(**options))
    source = np.array([[5, 7, 9, 2, 1], [8, 3, 1, 0, 0]])
    is_real = source != 0
    first = encoder(normalize_first=both.normalize_first)
    first.build((None, None, D))
    second = decoder(**options)
    for kind, half in (("encoder", first), ("decoder", second)):
        for part in ("blocks", "normalization"):
            name = f"{kind}_{part}"
            mine, theirs = getattr(half, name, []), getattr(both, name, [])
            pairs = zip(mine, theirs, strict=True) if part == "blocks" else [(mine, theirs)]
            for pair in pairs if mine else ():
                copy(*pair)
    copy(second.output_embedding, both.token_embedding)

    encoded = first(both.token_embedding(source), padding_mask=is_real)
    wanted = numpy(both({"encoder_token_ids": source, "decoder_token_ids": IDS}))
    np.testing.assert_allclose(numpy(second(IDS, encoded, is_real)), wanted, atol=1e-5)

    memory, cache = second.memory(encoded, is_real), second.initial_cache(B, 1, T)
    for place in range(T):
        logits, cache = second.decode_step(IDS[:, place : place + 1], place, memory, cache)
        np.testing.assert_allclose(numpy(logits)[:, 0], wanted[:, place], atol=1e-4)


def test_without_a_mask_all_is_real():
    layer = randomized(decoder())
    all_real = np.ones((B, S), bool)
    wanted = numpy(layer(IDS, X, all_real))
    np.testing.assert_allclose(numpy(layer(IDS, X)), wanted, atol=1e-6)
    assert np.abs(numpy(layer(IDS, X, PADDING))[1] - wanted[1]).max() > 0.01
    cache = layer.initial_cache(B, 1, T)
    logits, _ = layer.decode_step(IDS[:, :1], 0, layer.memory(X), cache)
    np.testing.assert_allclose(numpy(logits)[:, 0], wanted[:, 0], atol=1e-4)


def test_weights_of_the_cross_attention_hide_padding():
    layer = randomized(decoder())
    logits, scores = layer(IDS, X, PADDING, return_cross_attention_scores=True)
    np.testing.assert_allclose(numpy(logits), numpy(layer(IDS, X, PADDING)), atol=1e-5)
    assert [tuple(each.shape) for each in scores] == [(B, N, T, S)] * L
    for each in map(numpy, scores):
        np.testing.assert_allclose(each.sum(axis=-1), 1.0, atol=1e-5)
        assert np.all(each[1, :, :, 3:] == 0) and np.all(each[0, :, :, 3:] > 0)


@pytest.mark.backends("torch")
def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`num_layers` must be an int"):
        TransformerEncoder((2, 3))
    with pytest.raises(ValueError, match="`num_heads` must divide the width"):
        encoder().build((None, None, D + 1))
    with pytest.raises(ValueError, match="`num_heads` must divide the width"):
        TransformerDecoder(V, L, D + 1, F, N)
    with pytest.raises(ValueError, match="vocabulary of 13 tokens"):
        decoder()(IDS + 1, X)
    with pytest.raises(ValueError, match="learned positions for 3 tokens"):
        decoder(position_layout="learned", max_length=3)(IDS, X)
