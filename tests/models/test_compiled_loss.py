"""Updates on PyTorch with `jit_compile=True` are those without it."""

import shutil

import keras
import numpy as np
import pytest

from keras_attention import (
    Adam,
    LabelSmoothedCrossentropy,
    TokenAccuracy,
    Transformer,
    TransformerEncoderBlock,
)
from keras_attention.models import compiled_loss, torch_step

pytestmark = pytest.mark.backends("torch")
V, B, S, T = 23, 3, 5, 4
rng = np.random.default_rng(5)
INPUTS = {
    "encoder_token_ids": rng.integers(2, V, (B, S)),
    "decoder_token_ids": rng.integers(2, V, (B, T)),
}
LABELS, WEIGHTS = rng.integers(2, V, (B, T)), rng.uniform(0.5, 2.0, B)


class Watched(TransformerEncoderBlock):
    """A user's block, which adds a loss."""

    def call(self, inputs, **kwargs):
        self.add_loss(keras.ops.mean(keras.ops.square(inputs)))
        return super().call(inputs, **kwargs)


class Watching(Transformer):
    def make_block(self, kind, **arguments):
        return Watched(**arguments) if kind == "encoder" else super().make_block(kind, **arguments)


class Noisy(Transformer):
    """Draws numbers with Keras' own function, which reads the seed."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.noise = keras.random.SeedGenerator(7)

    def call(self, inputs, **kwargs):
        return keras.random.dropout(super().call(inputs, **kwargs), 0.5, seed=self.noise)


def fitted(jit_compile, kind=Watching):
    """Return a model and the history of four epochs of an update each."""
    sizes = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12, "num_heads": 2}
    model = kind(vocabulary_size=V, **sizes, dropout=0.3, attention_dropout=0.2, seed=3)
    model.decoder_blocks[0].feed_forward.outer.kernel.regularizer = keras.regularizers.L2(0.5)
    loss = LabelSmoothedCrossentropy(0.1)
    model.compile(Adam(0.02), loss, metrics=[TokenAccuracy()], jit_compile=jit_compile)
    fit = {"batch_size": B, "epochs": 4, "shuffle": False, "verbose": 0}
    return model, model.fit(INPUTS, LABELS, sample_weight=WEIGHTS, **fit).history


@pytest.mark.skipif(shutil.which("g++") is None, reason="PyTorch's compiler needs g++")
def test_compiled_updates_equal_plain_ones(monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args)
        return original(*args)

    original = compiled_loss.loss_and_logs
    for module in (compiled_loss, torch_step):
        monkeypatch.setattr(module, "loss_and_logs", counted)
    plain, wanted = fitted(jit_compile=False)
    assert len(calls) == 4
    compiled, history = fitted(jit_compile=True)
    assert len(calls) == 4 + 2  # the first batch, and the tracing for the other three
    assert wanted["loss"][0] != wanted["loss"][3]
    assert history.keys() == wanted.keys() == {"loss", "token_accuracy"}
    for name, values in wanted.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    for one, other in zip(plain.get_weights(), compiled.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_first_batch_that_failed_is_a_first_batch_again(monkeypatch):
    original, calls = compiled_loss.loss_and_logs, []

    def failing(*args):
        calls.append(args)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(compiled_loss, "loss_and_logs", failing)
    model = Transformer(V, 1, 8, 12, 2, dropout=0.3)
    model.compile(Adam(0.02), LabelSmoothedCrossentropy(), jit_compile=True)
    with pytest.raises(KeyboardInterrupt):
        model.fit(INPUTS, LABELS, verbose=0)
    model.fit(INPUTS, LABELS, verbose=0)
    assert len(calls) == 2 and all(model.compiled_loss._draws.values())


def test_random_numbers_that_a_program_would_repeat_are_refused():
    with pytest.raises(RuntimeError, match="jit_compile=False.*keras.layers.Dropout"):
        fitted(jit_compile=True, kind=Noisy)
