"""The token embedding: scaled, zero for padding, tied to the softmax."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import TokenEmbedding, TransformerEncoderBlock
from tests.helpers import numpy

B, T, V, D = 2, 3, 11, 5
IDS = np.array([[7, 2, 0], [10, 0, 0]])
rng = np.random.default_rng(11)
HIDDEN = rng.normal(size=(B, T, D)).astype("float32")


def test_rows_are_looked_up_and_scaled_and_padding_is_zero():
    layer = TokenEmbedding(V, D)
    got = numpy(layer(IDS))
    table = layer.get_weights()[0]
    assert table.shape == (V, D) and np.abs(table[0]).max() > 0.01  # Its row is not what is zero.
    for b, t in np.ndindex(B, T):
        expected = table[IDS[b, t]] * np.sqrt(5.0) if IDS[b, t] else np.zeros(D)
        np.testing.assert_allclose(got[b, t], expected, rtol=1e-6)


@pytest.mark.parametrize("pad_token_id", [2, None])
def test_padding_may_have_another_id_or_none(pad_token_id):
    got = np.abs(numpy(TokenEmbedding(V, D, pad_token_id=pad_token_id)(IDS))).max(-1)
    np.testing.assert_array_equal(got == 0, IDS == (-1 if pad_token_id is None else pad_token_id))


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("bool", 9), ("int8", 256), ("uint8", 256), ("int16", 2**16), ("uint16", 2**16)],
)
def test_ids_may_be_of_any_integer_type(dtype, size):
    """Also of one that cannot hold the size of the vocabulary."""
    layer, ids = TokenEmbedding(size, D), np.array([[1, 0, 127]]).astype(dtype)
    np.testing.assert_array_equal(numpy(layer(ids)), numpy(layer(ids.astype("int32"))))
    assert np.isfinite(numpy(layer(ids))).all()
    if dtype == "int8":
        assert np.isnan(numpy(layer(ops.convert_to_tensor(np.array([[-1]], dtype))))).all()


def test_logits_are_products_with_the_unscaled_table():
    layer = TokenEmbedding(V, D)
    layer.build((None, None))
    got = numpy(layer(HIDDEN, reverse=True))
    assert got.shape == (B, T, V) and len(layer.weights) == 1
    np.testing.assert_allclose(got, HIDDEN @ layer.get_weights()[0].T, atol=1e-5)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_with_lora_it_is_saved_and_loaded(tie_weights, tmp_path):
    layer = TokenEmbedding(V, D, tie_weights=tie_weights, use_logits_bias=True)
    layer.build()
    layer.enable_lora(2, lora_alpha=3)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    inputs = keras.Input((T,), dtype="int32")
    model = keras.Model(inputs, layer(layer(inputs), reverse=True))
    table, *other, bias, a, b = map(numpy, layer.weights)
    merged = table + 3 / 2 * a @ b
    rows = merged[IDS] * D**0.5 * (IDS != 0)[..., None]
    expected = rows @ (merged.T if tie_weights else other[0]) + bias
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    for one in (model, copy):
        np.testing.assert_allclose(numpy(one(IDS)), expected, rtol=1e-4, atol=1e-4)
    assert (copy.layers[1].lora_rank, copy.layers[1].lora_alpha) == (2, 3)


def test_untied_logits_have_a_table_of_their_own():
    layer = TokenEmbedding(V, D, tie_weights=False)
    layer.build((None, None))
    tables = layer.get_weights()
    assert [w.shape for w in tables] == [(V, D), (D, V)]
    np.testing.assert_allclose(numpy(layer(HIDDEN, reverse=True)), HIDDEN @ tables[1], atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_both_uses_train_the_one_table(reverse):
    """A step of SGD with rate 1 on the sum of the outputs moves the table by minus its gradient."""
    layer = TokenEmbedding(V, D)
    layer.build((None, None))

    class Use(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.embedding = layer

        def call(self, inputs):
            return self.embedding(inputs, reverse=reverse)

    inputs = keras.Input((T, D)) if reverse else keras.Input((T,), dtype="int32")
    model = keras.Model(inputs, Use()(inputs))
    model.compile(keras.optimizers.SGD(1.0), lambda y, x: ops.sum(x, axis=(1, 2)) * B)
    before = layer.get_weights()[0]
    model.train_on_batch(HIDDEN if reverse else IDS, np.zeros(B))
    gradient = before - layer.get_weights()[0]
    if reverse:
        expected = np.repeat(HIDDEN.sum((0, 1))[None], V, 0)
    else:
        expected = np.zeros((V, D))
        for token in IDS[IDS != 0]:
            expected[token] += np.sqrt(5.0)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.backends("torch")
def test_starts_with_standard_deviation_one_over_root_width():
    layer = TokenEmbedding(2000, 64)
    layer.build((None, None))
    assert layer.get_weights()[0].std() == pytest.approx(0.125, rel=0.02)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_both_directions_run_in_the_compute_dtype(policy):
    layer = TokenEmbedding(V, D, dtype=policy)
    embedded = layer(IDS)
    logits = layer(embedded, reverse=True)
    for outputs in (embedded, logits):
        assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(layer.embeddings.dtype) == "float32"
    exact = TokenEmbedding(V, D, dtype=policy, reverse_dtype="float32")
    symbolic = exact(keras.KerasTensor((B, T, D)), reverse=True)
    for logits in (exact(embedded, reverse=True), symbolic):
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_implicit_mask_if_asked_for():
    inputs = keras.Input((T,), dtype="int32")
    masked = keras.Model(inputs, TokenEmbedding(V, D, mask_zero=True)(inputs))
    np.testing.assert_array_equal(numpy(masked(IDS)._keras_mask).astype(bool), IDS != 0)
    other = TokenEmbedding(V, D, pad_token_id=2, mask_zero=True)(IDS)
    np.testing.assert_array_equal(numpy(other._keras_mask).astype(bool), IDS != 2)
    assert getattr(TokenEmbedding(V, D)(IDS), "_keras_mask", None) is None


@pytest.mark.parametrize("length", [T, D])  # with D, ids have the shape of hidden states
def test_implicit_mask_in_a_sequential_model(length):
    """Keras gives its first layer ids as floats there."""
    ids = np.array([[5, 7, 3] + [0] * (length - 3), [2] * length])
    embedding = TokenEmbedding(V, D, mask_zero=True)
    masked = keras.Sequential([embedding])(ids)
    np.testing.assert_array_equal(numpy(masked._keras_mask).astype(bool), ids != 0)
    rows = numpy(masked)[0]
    assert getattr(embedding(rows, reverse=True), "_keras_mask", None) is None
    block = TransformerEncoderBlock(num_heads=1, intermediate_dim=16)
    outputs = keras.Sequential([embedding, block])(ids)
    alone = block(embedding(ids[:1, :3]))
    np.testing.assert_allclose(numpy(outputs)[:1, :3], numpy(alone), atol=1e-5)


@pytest.mark.parametrize(("policy", "exact"), [("mixed_bfloat16", 256), ("mixed_float16", 2048)])
def test_ids_that_were_rounded_are_refused(policy, exact):
    """A `Sequential` gives its first layer ids in the compute dtype: 2047 would be 2048 in bfloat16."""
    ids = np.array([[exact - 1, exact - 2]])
    embedding = TokenEmbedding(exact, D, dtype=policy)
    np.testing.assert_array_equal(
        numpy(ops.cast(keras.Sequential([embedding])(ids), "float32")),
        numpy(ops.cast(embedding(ids), "float32")),
    )
    with pytest.raises(ValueError, match=f"rounds those above {exact}"):
        keras.Sequential([TokenEmbedding(exact + 1, D, dtype=policy)])(ids)
