"""Blocks computed again in the backward pass: the same training as without, from less that is kept."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LabelSmoothedCrossentropy, Transformer, TransformerEncoderBlock
from keras_attention.layers.recompute import recomputed_call
from tests.gradients import gradients

V, L, D, F, N, B, T, S = 13, 1, 12, 20, 3, 4, 5, 7
rng = np.random.default_rng(16)
SOURCE, TARGET = rng.integers(2, V, (B, S)), rng.integers(2, V, (B, T))
SOURCE[1, 4:] = 0
TORCH = pytest.mark.backends(
    "torch"
)  # XLA compiles each form for ten seconds, TensorFlow traces as long
RATES = {"dropout": 0.4, "attention_dropout": 0.3, "activation_dropout": 0.2}


@functools.cache
def trained(recompute, dtype="float32", accumulation_steps=1, sizes=(D, F, N), **arguments):
    """A model after two updates through Keras, its weights before, and its losses."""
    model = Transformer(
        V, L, *sizes, seed=3, dtype=dtype, recompute=recompute, **{**RATES, **arguments}
    )
    before = model.get_weights()
    loss = LabelSmoothedCrossentropy()
    model.compile(keras.optimizers.SGD(0.5), loss, accumulation_steps=accumulation_steps)
    inputs = {"encoder_token_ids": SOURCE, "decoder_token_ids": np.roll(TARGET, 1, axis=1)}
    history = model.fit(inputs, TARGET, batch_size=B, epochs=2, shuffle=False, verbose=0)
    return model, before, history.history["loss"]


@pytest.mark.parametrize(
    ("dtype", "accumulation_steps", "sizes", "tolerance"),
    [
        # Sums of gradients in another order: another rounding.
        ("float32", 1, (D, F, N), 1e-5),
        pytest.param("float32", 2, (D, F, N), 1e-5, marks=TORCH),
        pytest.param("mixed_bfloat16", 1, (D, F, N), 0.15, marks=TORCH),
        # Wide enough for kernels that are for large products alone.
        ("float32", 1, (64, 136, 4), 1e-5),
    ],
)
def test_training_is_that_without_dropout_included(dtype, accumulation_steps, sizes, tolerance):
    plain, before, losses = trained(False, dtype, accumulation_steps, sizes)
    again, _, same_losses = trained(True, dtype, accumulation_steps, sizes)
    np.testing.assert_allclose(same_losses, losses, rtol=tolerance)
    for weight, old, mine, expected in zip(
        plain.weights, before, again.get_weights(), plain.get_weights(), strict=True
    ):
        if weight.dtype.startswith(("int", "uint")):  # the seeds' states
            assert (mine != old).any()
            np.testing.assert_array_equal(mine, expected)
        else:
            moved = np.abs(expected - old).max()
            assert moved > 1e-4, weight.path
            assert np.abs(mine - expected).max() < tolerance * max(moved, 0.02), weight.path


@pytest.mark.backends("torch")
def test_other_masks_would_show():
    """The test above could pass if dropout did nothing to speak of."""
    plain, before, losses = trained(False)
    # Of the same seed, masks of like rates drop nearly the same units.
    other, _, other_losses = trained(False, dropout=0.5)
    assert abs(losses[1] - other_losses[1]) > 1e-3
    moved, change = (
        np.abs(ops.convert_to_numpy(plain.token_embedding.embeddings) - weights).max()
        for weights in (before[0], ops.convert_to_numpy(other.token_embedding.embeddings))
    )
    assert change > 0.4 * moved


class Doubling(keras.layers.Layer):
    """Keeps its inputs' squares for the gradient, and counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self.dropout = keras.layers.Dropout(0.5, seed=4)

    def call(self, inputs, other, factor=1.0, training=None):
        self.calls.append(training)
        x = self.dropout(ops.square(inputs), training=training)
        return ops.multiply(ops.square(self.dropout(x, training=training)), other) * factor


def test_gradients_of_a_layer_that_draws_twice():
    x, other = rng.normal(size=(2, 6, D)).astype("float32")
    plain, again = Doubling(), Doubling()

    def total(run):
        return lambda x, other: ops.sum(run(x, other))

    expected = gradients(total(lambda *x: plain(*x, factor=3.0, training=True)), x, other)
    got = gradients(
        total(lambda *x: recomputed_call(again, *x, factor=3.0, training=True)), x, other
    )
    for mine, his in zip(got, expected, strict=True):
        assert 0.5 < (his == 0.0).mean() < 0.95  # a quarter is kept
        np.testing.assert_allclose(mine, his, rtol=1e-5)
    states = [ops.convert_to_numpy(x.dropout.seed_generator.state) for x in (plain, again)]
    if keras.backend.backend() != "jax":  # its gradient traces, and leaves a tracer behind
        np.testing.assert_array_equal(states[0], [4, 2])
    np.testing.assert_array_equal(states[1], states[0])
    # JAX traces the call once and computes it twice.
    assert again.calls == [True] * (1 if keras.backend.backend() == "jax" else 2)


def kept_bytes(recompute, layers):
    """Bytes of what the backward pass is given of the forward pass, beside the weights."""
    arguments = {"dropout": 0.0, "recompute": recompute, "seed": 1}
    model = Transformer(V, layers, D, F, N, **arguments)
    inputs = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
    if keras.backend.backend() == "torch":
        import torch

        weights = {weight.value.data_ptr() for weight in model.weights}
        found = {}

        def pack(tensor):
            found[tensor.data_ptr()] = tensor.nbytes
            return tensor

        alive = []
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            alive.append(model(inputs, training=True))
        return sum(size for pointer, size in found.items() if pointer not in weights)
    import jax

    values = [weight.value for weight in model.trainable_weights]

    def logits(values):
        with keras.StatelessScope(list(zip(model.trainable_weights, values, strict=True))):
            return model(inputs, training=True)

    residuals = jax.eval_shape(lambda values: jax.vjp(logits, values)[1], values)
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(residuals)]
    return sum(sizes) - sum(value.nbytes for value in values)


@pytest.mark.backends("jax", "torch")
def test_what_is_kept_of_a_layer_is_its_inputs():
    grown = {
        recompute: kept_bytes(recompute, 3) - kept_bytes(recompute, 2)
        for recompute in (False, True)
    }
    inputs = 4 * D * B * (S + T)
    assert 0.9 * inputs < grown[True] < 2 * inputs  # JAX does not keep every weight.
    assert grown[False] > 6 * inputs


def test_inference_does_not_recompute(monkeypatch):
    from keras_attention.models import stacks

    called = []
    monkeypatch.setattr(stacks, "recomputed_call", lambda *_, **__: called.append(1))
    model = Transformer(V, 1, D, F, N, recompute=True)
    inputs = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
    assert tuple(model(inputs).shape) == (B, T, V) and not called


class Stateful(TransformerEncoderBlock):
    """A user's block: statistics of batches, random numbers of its own, a loss."""

    adds_loss = False

    def build(self, shape):
        super().build(shape)
        self.statistics = keras.layers.BatchNormalization(momentum=0.5)
        self.statistics.build(shape)
        self.seeds = [keras.random.SeedGenerator(7)]

    def call(self, inputs, training=None, **kwargs):
        if self.adds_loss:
            self.add_loss(ops.mean(ops.square(inputs)))
        x = self.statistics(inputs, training=training)
        if training:
            x = keras.random.dropout(x, 0.5, seed=self.seeds[0])
        return super().call(x, training=training, **kwargs)


class Adding(Stateful):
    adds_loss = True


def fitted_with(kind, recompute):
    """A model with blocks of a user's kind after two updates, and its losses."""

    class Model(Transformer):
        def make_block(self, side, **arguments):
            return kind(**arguments) if side == "encoder" else super().make_block(side, **arguments)

    model = Model(V, L, D, F, N, seed=3, recompute=recompute)
    model.compile(keras.optimizers.SGD(0.5), LabelSmoothedCrossentropy())
    inputs = {"encoder_token_ids": SOURCE, "decoder_token_ids": np.roll(TARGET, 1, axis=1)}
    history = model.fit(inputs, TARGET, batch_size=B, epochs=2, shuffle=False, verbose=0)
    return model, history.history["loss"]


@pytest.mark.backends("tensorflow", "torch")  # JAX refuses, as it does without this package.
@pytest.mark.parametrize("kind", [Stateful, pytest.param(Adding, marks=TORCH)])
def test_a_users_block_changes_its_state_once(kind):
    (plain, losses), (again, same) = (fitted_with(kind, recompute) for recompute in (False, True))
    np.testing.assert_allclose(same, losses, rtol=1e-5)
    for mine, expected in zip(again.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
    moved = ops.convert_to_numpy(again.encoder_blocks[0].statistics.moving_mean)
    assert np.abs(moved).max() > 1e-3


@pytest.mark.backends("tensorflow")
def test_a_loss_without_a_gradient_is_refused():
    with pytest.raises(NotImplementedError, match="recompute=True: the loss that encoder_block"):
        fitted_with(Adding, True)
