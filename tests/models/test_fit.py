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


class Squaring(Transformer):
    """A user's model with a loss of its own beside."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + ops.mean(ops.square(y_pred))


def fitted(kind, change=lambda model: None, slices=1, rate=0.0, **options):
    """The loss of the second epoch, after an update at this rate."""
    model = kind(
        V, num_layers=2, hidden_dim=8, intermediate_dim=16, num_heads=2, dropout=0.0, seed=1
    )
    change(model)
    loss = LabelSmoothedCrossentropy(0.1)
    model.compile(keras.optimizers.SGD(rate), loss, accumulation_steps=slices, **options)
    return model.fit(INPUTS, LABELS, verbose=0, batch_size=B, epochs=2).history["loss"][-1]


@functools.cache
def plain_loss():
    return fitted(Transformer)


def of_outputs(model):
    model.decoder_blocks[1].feed_forward.activity_regularizer = keras.regularizers.L1(0.25)


@pytest.mark.parametrize("slices", [1, B])
@pytest.mark.parametrize("kind, added", [(Watching, 2 * 2.5), (Adding, 1.5)])
def test_a_loss_that_a_users_layer_or_model_adds_counts(kind, added, slices):
    assert fitted(kind, slices=slices) == pytest.approx(plain_loss() + added, abs=1e-5)


@pytest.mark.parametrize("slices", [1, B])
def test_a_loss_of_a_regularizer_counts(slices):
    squares = []

    def regularized(model):
        kernel = model.encoder_blocks[0].feed_forward.inner.kernel
        kernel.regularizer = keras.regularizers.L2(0.5)
        squares.append(0.5 * np.sum(np.square(ops.convert_to_numpy(kernel))))

    loss = fitted(Transformer, regularized, slices)
    assert squares[0] > 0.01
    assert loss == pytest.approx(plain_loss() + squares[0], abs=1e-5)


def test_a_loss_of_outputs_counts_also_in_slices():
    whole = fitted(Transformer, of_outputs, rate=0.02)
    assert whole > fitted(Transformer, rate=0.02) + 1e-3
    assert fitted(Transformer, of_outputs, B, rate=0.02) == pytest.approx(whole, abs=1e-5)
    assert fitted(Transformer, of_outputs) > whole + 1e-2


@pytest.mark.parametrize("kind, options", [(Squaring, {}), (Transformer, {"loss_weights": 0.25})])
def test_slices_have_the_whole_loss_that_was_compiled(kind, options):
    whole = fitted(kind, rate=0.1, **options)
    assert whole != pytest.approx(fitted(Transformer, rate=0.1), rel=0.01)
    assert fitted(kind, rate=0.1, slices=B, **options) == pytest.approx(whole, rel=1e-5)


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
