"""What `fit` finds once, it finds anew in the next one, and nothing of a user's own is missed."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LabelSmoothedCrossentropy, Transformer, TransformerEncoderBlock

V, B, S, T = 13, 3, 5, 4
rng = np.random.default_rng(8)
INPUTS = {
    "encoder_token_ids": rng.integers(2, V, (B, S)),
    "decoder_token_ids": rng.integers(2, V, (B, T)),
}
LABELS = rng.integers(2, V, (B, T))


class Watched(TransformerEncoderBlock):
    """A user's block, which adds a loss."""

    def call(self, inputs, **kwargs):
        self.add_loss(ops.mean(ops.zeros_like(inputs)) + 2.5)
        return super().call(inputs, **kwargs)


class Watching(Transformer):
    def make_block(self, kind, **arguments):
        return Watched(**arguments) if kind == "encoder" else super().make_block(kind, **arguments)


class Adding(Transformer):
    """A user's model, which adds a loss itself."""

    def call(self, inputs, **kwargs):
        self.add_loss(ops.mean(ops.zeros_like(inputs["decoder_token_ids"], "float32")) + 1.5)
        return super().call(inputs, **kwargs)


def fitted(kind, change=lambda model: None):
    model = kind(
        V, num_layers=2, hidden_dim=8, intermediate_dim=16, num_heads=2, dropout=0.0, seed=1
    )
    change(model)
    model.compile(keras.optimizers.SGD(0.0), LabelSmoothedCrossentropy(0.1))
    return model.fit(INPUTS, LABELS, verbose=0, batch_size=B).history["loss"][-1]


@functools.cache
def plain_loss():
    return fitted(Transformer)


def regularized(model):
    model.encoder_blocks[0].feed_forward.inner.kernel.regularizer = keras.regularizers.L2(0.5)


def of_outputs(model):
    model.decoder_blocks[1].feed_forward.activity_regularizer = keras.regularizers.L1(0.25)


@pytest.mark.parametrize("kind, added", [(Watching, 2 * 2.5), (Adding, 1.5)])
def test_a_loss_that_a_users_layer_or_model_adds_counts(kind, added):
    assert fitted(kind) == pytest.approx(plain_loss() + added, abs=1e-5)


@pytest.mark.parametrize("change", [regularized, of_outputs])
def test_a_loss_of_a_regularizer_counts(change):
    assert fitted(Transformer, change) > plain_loss() + 1e-3


def test_a_layer_that_is_frozen_between_two_fits_stays_as_it_is():
    model = Transformer(V, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2, seed=1)
    model.compile(keras.optimizers.SGD(0.5), LabelSmoothedCrossentropy(0.1))
    model.fit(INPUTS, LABELS, verbose=0)
    frozen, free = model.encoder_blocks[0], model.decoder_blocks[0]
    frozen.trainable = False
    model.compile(keras.optimizers.SGD(0.5), LabelSmoothedCrossentropy(0.1))
    before = [block.get_weights() for block in (frozen, free)]
    model.fit(INPUTS, LABELS, verbose=0)
    changed = [
        any(np.any(old != new) for old, new in zip(olds, block.get_weights(), strict=True))
        for olds, block in zip(before, (frozen, free), strict=True)
    ]
    assert changed == [False, True]
