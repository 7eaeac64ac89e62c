"""Restricted self-attention in blocks and models: equal to a mask, decoded, saved, refused by engines."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    Transformer,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
    Translator,
)
from keras_attention.spec import SpecError
from tests.decoding.letters import LetterTokenizer, random_texts, small_model
from tests.helpers import numpy

B, T, S, D, F, N, WINDOW = 2, 23, 7, 12, 10, 3, 4
rng = np.random.default_rng(17)
X = rng.normal(size=(B, T, D)).astype("float32")
MEMORY = rng.normal(size=(B, S, D)).astype("float32")
BAND = np.abs(np.arange(T)[None, :] - np.arange(T)[:, None]) < WINDOW


def model(**options):
    sizes = {"num_layers": 2, "hidden_dim": D, "intermediate_dim": F, "num_heads": N}
    return Transformer(17, **sizes, dropout=0.0, seed=3, attention_window=WINDOW, **options)


@pytest.mark.parametrize("kind", [TransformerEncoderBlock, TransformerDecoderBlock])
def test_a_block_with_a_window_equals_one_with_a_mask(kind):
    windowed, masked = (
        kind(N, F, dropout=0.0, kernel_initializer="he_normal", seed=2, attention_window=window)
        for window in (WINDOW, None)
    )
    is_decoder = kind is TransformerDecoderBlock
    more = (ops.convert_to_tensor(MEMORY),) if is_decoder else ()
    for block in (windowed, masked):
        block.build(X.shape, *[part.shape for part in more])
    masked.set_weights(windowed.get_weights())
    band = np.broadcast_to(BAND[None], (B, T, T))
    mask = {"decoder_attention_mask" if is_decoder else "attention_mask": band}
    expected = numpy(masked(X, *more, **mask))
    np.testing.assert_allclose(numpy(windowed(X, *more)), expected, atol=1e-5)
    assert np.abs(numpy(masked(X, *more)) - expected).max() > 1e-2  # The window matters.


@pytest.mark.parametrize("options", [{}, {"position_layout": "learned", "max_length": 30}])
def test_decoding_equals_the_forward(options, tmp_path):
    windowed = model(**options)
    source, target = rng.integers(2, 17, (B, S)), rng.integers(2, 17, (B, T))
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
    expected = numpy(windowed(inputs))
    memory, cache = windowed.encode(source), windowed.initial_cache(B, 1, T)
    for t in range(T):
        logits, cache = windowed.decode_step(target[:, t : t + 1], t, memory, cache)
        np.testing.assert_allclose(numpy(logits)[:, 0], expected[:, t], atol=2e-5)
    windowed.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert other.get_config()["attention_window"] == WINDOW
    np.testing.assert_allclose(numpy(other(inputs)), expected, atol=1e-6)


@pytest.mark.backends("torch")
def test_engines_refuse_a_window_and_the_plain_search_serves():
    windowed = small_model(seed=3, attention_window=2)
    with pytest.raises(SpecError, match="self_attention.* has .* window"):
        windowed.spec()
    options = {"beam_size": 3, "max_extra_length": 4, "show_progress": False}
    with pytest.raises(ValueError, match="window"):
        Translator(windowed, LetterTokenizer(), engine="torch", **options).translate(["ab"])
    texts = random_texts(3, longest=9)
    auto, plain = (
        Translator(windowed, LetterTokenizer(), engine=engine, **options)
        for engine in ("auto", "plain")
    )
    assert auto.engine_for(3).name == "plain"
    assert auto.translate(texts) == plain.translate(texts)
