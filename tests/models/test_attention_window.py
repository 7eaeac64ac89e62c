"""Restricted self-attention in blocks and models: equal to a mask, decoded in a ring, saved, declared."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import Transformer, TransformerDecoderBlock, TransformerEncoderBlock
from keras_attention.layers import multi_head_attention
from keras_attention.ops import windowed_attention as room
from tests.gradients import gradients
from tests.helpers import STEP_BY_STEP, numpy

B, T, S, D, F, N, WINDOW = 2, 23, 7, 12, 10, 3, 4
rng = np.random.default_rng(17)
X = rng.normal(size=(B, T, D)).astype("float32")
MEMORY = rng.normal(size=(B, S, D)).astype("float32")
SEEN = np.arange(T)[None] < np.array([[T], [9]])
BAND = np.abs(np.arange(T)[None, :] - np.arange(T)[:, None]) < WINDOW


def model(num_layers=2, **options):
    sizes = {"num_layers": num_layers, "hidden_dim": D, "intermediate_dim": F, "num_heads": N}
    return Transformer(17, **sizes, dropout=0.0, seed=3, **options)


@pytest.fixture
def small_blocks(monkeypatch):
    """Counts how often attention is computed in blocks, which are as small as the window."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return room.windowed_attention(*arguments)

    monkeypatch.setattr(room, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(multi_head_attention, "windowed_attention", counted)
    return calls


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", [TransformerEncoderBlock, TransformerDecoderBlock])
def test_a_block_with_a_window_equals_one_with_a_mask(kind, padded, small_blocks):
    windowed, masked = (
        kind(N, F, dropout=0.0, kernel_initializer="he_normal", seed=2, sliding_window=window)
        for window in (WINDOW, None)
    )
    is_decoder = kind is TransformerDecoderBlock
    more = (ops.convert_to_tensor(MEMORY),) if is_decoder else ()
    for block in (windowed, masked):
        block.build(X.shape, *[part.shape for part in more])
    masked.set_weights(windowed.get_weights())
    side = "decoder_" if is_decoder else ""
    band = ops.convert_to_tensor(np.broadcast_to(BAND[None], (B, T, T)))
    padding = {f"{side}padding_mask": ops.convert_to_tensor(SEEN)} if padded else {}
    weights = rng.normal(size=X.shape).astype("float32") * SEEN[:, :, None]

    def outputs(block, x, **masks):
        return block(ops.convert_to_tensor(x), *more, **padding, **masks)

    def total(block, x, **masks):
        return ops.sum(outputs(block, x, **masks) * ops.convert_to_tensor(weights))

    mask = {f"{side}attention_mask": band}
    real = SEEN if padded else np.ones_like(SEEN)
    expected = numpy(outputs(masked, X, **mask))[real]
    assert not small_blocks
    np.testing.assert_allclose(numpy(outputs(windowed, X))[real], expected, atol=1e-5)
    assert small_blocks
    assert np.abs(numpy(outputs(masked, X))[real] - expected).max() > 1e-2  # The window matters.
    found, wanted = (
        gradients(lambda x, b=block, m=m: total(b, x, **m), X)[0]
        for block, m in ((windowed, {}), (masked, mask))
    )
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("length", [T, 9])
def test_a_length_that_is_known_only_when_the_graph_runs(length, small_blocks):
    import tensorflow as tf

    block = TransformerEncoderBlock(N, F, dropout=0.0, seed=2, sliding_window=WINDOW)
    block.build((None, None, D))
    signature = [tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), "bool")]

    @tf.function(input_signature=signature)
    def run(x, seen):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = block(x, padding_mask=seen)
            total = tf.reduce_sum(tf.where(seen[..., None], outputs, 0.0) ** 3)
        return outputs, tape.gradient(total, x)

    x, seen = X[:, :length], SEEN[:, :length]
    outputs, gradient = run(x, seen)
    assert len(small_blocks) == 1  # It is in the graph; whether it runs, the length decides.
    band = np.broadcast_to(BAND[None, :length, :length], (B, length, length))
    plain = TransformerEncoderBlock(N, F, dropout=0.0, seed=2)
    plain.build((None, None, D))
    plain.set_weights(block.get_weights())

    def total(x):
        outputs = plain(x, padding_mask=seen, attention_mask=band)
        return ops.sum(ops.where(seen[..., None], outputs, 0.0) ** 3)

    expected = numpy(plain(x, padding_mask=seen, attention_mask=band))
    np.testing.assert_allclose(numpy(outputs)[seen], expected[seen], atol=1e-5)
    np.testing.assert_allclose(numpy(gradient), gradients(total, x)[0], atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"position_layout": "learned", "max_length": 30}])
def test_decoding_in_a_ring_equals_the_forward(options):
    windowed = model(attention_window=WINDOW, **options)
    source = rng.integers(2, 17, (B, S))
    target = rng.integers(2, 17, (B, T))
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
    expected = numpy(windowed(inputs))
    memory = windowed.encode(source)
    cache = windowed.initial_cache(B, 1, T)
    assert {part.shape[2] for block in cache for part in block.values()} == {WINDOW}
    for t in range(T):
        logits, cache = windowed.decode_step(target[:, t : t + 1], t, memory, cache)
        np.testing.assert_allclose(numpy(logits)[:, 0], expected[:, t], atol=2e-5)


def test_saved_declared_and_trained(tmp_path):
    windowed = model(num_layers=1, attention_window=WINDOW)
    ids = rng.integers(2, 17, (B, T))
    inputs = {"encoder_token_ids": ids[:, :S], "decoder_token_ids": ids}
    expected = numpy(windowed(inputs))
    windowed.save(tmp_path / "model.keras")
    for other in (
        keras.saving.load_model(tmp_path / "model.keras"),
        Transformer.from_spec(windowed.spec()),
    ):
        np.testing.assert_allclose(numpy(other(inputs)), expected, atol=1e-6)
        assert other.get_config()["attention_window"] == WINDOW
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    windowed.compile("adam", loss, **STEP_BY_STEP)
    losses = [float(windowed.train_on_batch(inputs, ids)) for _ in range(4)]
    assert losses[-1] < losses[0]


@pytest.mark.backends("torch")
def test_a_window_wider_than_the_positions_is_refused():
    with pytest.raises(ValueError, match="must be at most 8, the number of learned positions"):
        model(attention_window=9, position_layout="learned", max_length=8)
