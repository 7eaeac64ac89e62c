"""The importance of heads, against models whose weights of a head are zero."""

import sys

import numpy as np
import pytest

from keras_attention import Transformer, head_importance

pytestmark = pytest.mark.backends("torch")

LAYERS, HEADS, D, VOCABULARY = 2, 3, 12, 17


@pytest.fixture(scope="module")
def model():
    """A small model whose heads matter."""
    model = Transformer(
        VOCABULARY, LAYERS, hidden_dim=D, intermediate_dim=16, num_heads=HEADS, dropout=0.0, seed=3
    )
    rng = np.random.default_rng(4)
    model.set_weights([rng.normal(size=w.shape) * 0.5 for w in model.get_weights()])
    return model


def sentences(rng):
    """Source, target shifted right, and target, padded."""
    source = rng.integers(2, VOCABULARY, (5, 7))
    target = rng.integers(2, VOCABULARY, (5, 4))
    source[1, 5:] = 0
    target[2, 3:] = 0
    read = np.concatenate([np.zeros((5, 1), int), target[:, :-1]], axis=1)
    return source, read, target


def loss(model, source, read, target):
    """Mean cross-entropy of the target tokens, in NumPy."""
    inputs = {"encoder_token_ids": source, "decoder_token_ids": read}
    logits = np.asarray(model.predict_on_batch(inputs), "float64")
    logits -= logits.max(-1, keepdims=True)
    scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(scores, target[..., None], axis=-1)[..., 0]
    return -chosen[target != 0].mean()


def attention_of(model, kind, layer):
    blocks = model.encoder_blocks if kind == "encoder" else model.decoder_blocks
    return blocks[layer].cross_attention if kind == "cross" else blocks[layer].self_attention


def test_equals_the_loss_of_models_without_the_head(model, monkeypatch):
    # Two sentences at a time: the five are cut into three parts.
    monkeypatch.setattr(sys.modules[head_importance.__module__], "POSITIONS", 2 * HEADS * 4)
    batch = sentences(np.random.default_rng(5))
    importance = head_importance(model, *batch)
    whole = loss(model, *batch)
    for kind in ("encoder", "decoder", "cross"):
        assert np.shape(importance[kind]) == (LAYERS, HEADS)
        for layer, head in [(0, 0), (1, 2)]:
            kernel = attention_of(model, kind, layer).output_dense.kernel
            before = np.array(kernel)
            without = before.copy()
            without[head] = 0
            kernel.assign(without)
            expected = loss(model, *batch) - whole
            kernel.assign(before)
            assert importance[kind][layer][head] == pytest.approx(expected, abs=2e-5)
    assert np.abs([importance[kind] for kind in importance]).max() > 0.01


def test_what_does_not_fit_is_refused(model):
    source, read, target = sentences(np.random.default_rng(6))
    for arguments in (
        (source, read[:, :-1], target),
        (source[:-1], read, target),
        (source, read, np.zeros_like(target)),
        (source[0], read[0], target[0]),
    ):
        with pytest.raises(ValueError, match="Expected source ids"):
            head_importance(model, *arguments)
