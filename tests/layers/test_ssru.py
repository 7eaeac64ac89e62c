"""The SSRU against Kim et al. 2019 in NumPy: alone, in steps, masked, in low precision, and in a block."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import SSRU, TransformerDecoderBlock
from tests.helpers import numpy
from tests.layers.block_oracle import randomized
from tests.models.numpy_transformer import block as numpy_block
from tests.models.numpy_transformer import ssru

B, T, D, S, N, F = 2, 5, 8, 3, 2, 11
random = np.random.default_rng(12)
X = random.normal(size=(B, T, D)).astype("float32")
MEMORY = random.normal(size=(B, S, D)).astype("float32")


def layer_of(**options):
    layer = SSRU(**options)
    layer.build((None, None, D))
    for weight in layer.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return layer


@pytest.mark.parametrize("use_bias", [False, True])
def test_equals_the_paper_in_numpy(use_bias):
    layer = layer_of(use_bias=use_bias)
    assert len(layer.weights) == (4 if use_bias else 3)
    np.testing.assert_allclose(numpy(layer(X)), ssru(X.astype("float64"), layer.spec()), atol=2e-6)


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_state_continues_a_sequence(cut):
    layer = layer_of()
    whole = numpy(layer(X))
    first, state = layer(X[:, :cut], state=np.zeros((B, D), "float32"))
    second, _ = layer(X[:, cut:], state=state)
    np.testing.assert_allclose(np.concatenate([numpy(first), numpy(second)], 1), whole, atol=2e-6)


def test_the_state_passes_over_padding():
    """With padding before, between and after, real tokens give what they give alone."""
    layer, mask = layer_of(), np.array([[0, 1, 0, 1, 1], [1, 1, 1, 0, 0]], bool)
    outputs, state = layer(X, state=np.zeros((B, D)), mask=mask)
    for row in range(B):
        alone, last = layer(X[row : row + 1, mask[row]], state=np.zeros((1, D)))
        np.testing.assert_allclose(numpy(outputs)[row, mask[row]], numpy(alone)[0], atol=2e-6)
        np.testing.assert_allclose(numpy(state)[row], numpy(last)[0], atol=2e-6)
    embedding = keras.layers.Embedding(4, D, mask_zero=True)
    ids = np.array([[3, 0, 2]])
    implicit = layer(embedding(ids))
    wanted = layer(ops.convert_to_tensor(numpy(embedding(ids))), mask=ids != 0)
    np.testing.assert_allclose(numpy(implicit), numpy(wanted), atol=2e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_low_precision_keeps_the_state_in_float32(policy):
    """A thousand small additions: in bfloat16, none of them would change a sum above 1."""
    layer = SSRU(dtype=policy, kernel_initializer="zeros")
    layer.build((None, None, D))
    layer.inner.kernel.assign(np.eye(D))
    layer.forget.bias.assign(np.full(D, 7.0))  # f = 0.99909
    outputs, state = layer(np.ones((1, 1000, D), "float32"), state=np.zeros((1, D), "float32"))
    forget = 1 / (1 + np.exp(-7.0))
    assert keras.backend.standardize_dtype(state.dtype) == "float32"
    assert keras.backend.standardize_dtype(outputs.dtype) == layer.compute_dtype
    np.testing.assert_allclose(numpy(state), 1 - forget**1000, rtol=1e-3)
    step = np.ones((1, 1, D), "float32")
    for _ in range(100):
        _, state = layer(step, state=state)
    np.testing.assert_allclose(numpy(state), 1 - forget**1100, rtol=1e-3)


def block_of(**options):
    options = {"dropout": 0.0, "decoder_cell": "ssru", **options}
    return randomized(TransformerDecoderBlock(N, F, **options), X.shape, MEMORY.shape)


@pytest.mark.parametrize("options", [{}, {"normalize_first": True}])
def test_a_block_equals_numpy_at_once_and_in_steps(options):
    layer = block_of(**options)
    everything = np.ones((B, T, S), bool)
    wanted = numpy_block(
        X.astype("float64"), layer.spec(), None, MEMORY.astype("float64"), everything
    )
    outputs, own, cross = layer(X, MEMORY, return_attention_scores=True)
    assert own is None and cross.shape == (B, N, T, S)
    np.testing.assert_allclose(numpy(outputs), wanted, atol=2e-5)
    memory, cache = layer.project_memory(MEMORY), {"state": np.zeros((B, D), "float32")}
    for t in range(T):
        step, own, _, cache = layer(
            X[:, t : t + 1], memory=memory, cache=cache, start_index=t, return_attention_scores=True
        )
        assert own is None
        np.testing.assert_allclose(numpy(step)[:, 0], wanted[:, t], atol=2e-5)


def test_a_block_takes_arrays_of_float64():
    layer, arrays = block_of(), (X.astype("float64"), MEMORY.astype("float64"))
    np.testing.assert_array_equal(numpy(layer(*arrays)), numpy(layer(X, MEMORY)))


@pytest.mark.backends("torch")
def test_a_block_refuses_what_only_attention_can_use():
    layer = block_of()
    for arguments, problem in (
        (
            {"decoder_attention_mask": np.ones((B, T, T), bool)},
            "leave `decoder_attention_mask` out",
        ),
        ({"self_head_mask": np.ones((B, N))}, "leave `self_head_mask` out"),
        ({"cache": {"key": X, "value": X}}, r"`cache` must be a dict of 'state' \(B, D\)"),
        ({"cache": {"state": np.zeros((B, D + 1))}}, r"`cache\['state'\]`"),
    ):
        with pytest.raises(ValueError, match=problem):
            layer(X, MEMORY, **arguments)
    with pytest.raises(ValueError, match="An SSRU has no window"):
        block_of(attention_window=3)
    with pytest.raises(ValueError, match="An SSRU has no attention scores"):
        layer(keras.Input((T, D)), keras.Input((S, D)), return_attention_scores=True)
