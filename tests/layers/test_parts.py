"""Layers call what they own past Keras' `__call__`; what else that does happens where it is asked for."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import FeedForward, TransformerEncoderBlock
from keras_attention.layers.door import needs_keras

X = np.random.default_rng(7).normal(size=(2, 3, 8)).astype("float32")
MASK = np.array([[True, True, False], [True, True, True]])


def block(**options):
    made = TransformerEncoderBlock(num_heads=2, intermediate_dim=16, seed=3, **options)
    made.build(X.shape)
    return made


def numbers(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def parts_of(layer):
    names = ("self_attention", "self_attention_residual", "feed_forward", "feed_forward_residual")
    return [getattr(layer, name) for name in names]


def through_keras(monkeypatch):
    """Every part is called as Keras would call it."""
    monkeypatch.setattr("keras_attention.layers.door.needs_keras", lambda *_: True)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize("normalize_first", [False, True])
def test_the_same_numbers_as_through_keras(dtype, normalize_first, monkeypatch):
    made = block(dtype=dtype, normalize_first=normalize_first, activation_dropout=0.3)
    assert not any(needs_keras(made, part) for part in parts_of(made))
    state = [ops.convert_to_numpy(variable) for variable in made.non_trainable_variables]
    direct = [numbers(made(X, padding_mask=MASK, training=on)) for on in (False, True)]
    for variable, value in zip(made.non_trainable_variables, state, strict=True):
        variable.assign(value)
    through_keras(monkeypatch)
    for on, expected in zip((False, True), direct, strict=True):
        np.testing.assert_array_equal(numbers(made(X, padding_mask=MASK, training=on)), expected)
    assert np.abs(direct[0] - direct[1]).max() > 0.1  # dropout was on


@pytest.mark.backends("torch")
def test_training_is_found_where_the_caller_leaves_it_out():
    """An outer model's `training` reaches a part's dropout."""
    made = block(dropout=0.5)
    inputs = keras.Input((3, 8))
    model = keras.Model(inputs, made(inputs))
    still = numbers(model(X, training=False))
    np.testing.assert_array_equal(numbers(model(X)), still)
    assert np.abs(numbers(model(X, training=True)) - still).max() > 0.1


@pytest.mark.backends("torch")
def test_a_regularizer_of_a_parts_output_adds_its_loss():
    made = block()
    made.feed_forward.activity_regularizer = keras.regularizers.L2(0.5)
    made(X)
    (loss,) = made.losses
    inner = made.self_attention_residual(X, made.self_attention(X, X))
    expected = 0.5 * np.square(numbers(made.feed_forward(inner))).sum() / len(X)
    assert float(numbers(loss)) == pytest.approx(expected, rel=1e-4)


class Doubling(keras.layers.Layer):
    """A user's own network, which counts on Keras to convert, to build and to find `training`."""

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs, training=False):
        return inputs * (self.scale * (2.0 if training else 1.0))


class DoublingBlock(TransformerEncoderBlock):
    def build(self, input_shape):
        super().build(input_shape)
        self.feed_forward = Doubling()


@pytest.mark.backends("torch")
def test_a_users_own_layer_goes_through_keras():
    made = DoublingBlock(num_heads=2, intermediate_dim=16, dropout=0.0)
    made.build(X.shape)
    assert needs_keras(made, made.feed_forward)
    inner = numbers(made.self_attention_residual(X, made.self_attention(X, X)))
    for training, factor in ((False, 1.0), (True, 2.0)):
        expected = numbers(made.feed_forward_residual(inner, factor * inner))
        np.testing.assert_allclose(numbers(made(X, training=training)), expected, atol=1e-5)


class OwnDoor(FeedForward):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) + 1.0


@pytest.mark.backends("torch")
@pytest.mark.parametrize(
    "change",
    [
        lambda part: setattr(part, "dtype_policy", keras.DTypePolicy("bfloat16")),
        lambda part: setattr(part, "built", False),
        lambda part: setattr(part, "__class__", OwnDoor),
    ],
    ids=["dtype", "not built", "own __call__"],
)
def test_what_needs_keras(change):
    made = block()
    change(made.feed_forward)
    assert needs_keras(made, made.feed_forward)


def test_a_policy_for_each_layer():
    policy = keras.dtype_policies.DTypePolicyMap()
    policy["half/self_attention"] = "mixed_bfloat16"
    made = TransformerEncoderBlock(num_heads=2, intermediate_dim=16, dtype=policy, name="half")
    found = numbers(made(X))
    attended = made.self_attention(X, X)
    assert keras.backend.standardize_dtype(attended.dtype) == "bfloat16"
    inner = made.self_attention_residual(X, keras.ops.cast(attended, "float32"))
    expected = made.feed_forward_residual(inner, made.feed_forward(inner))
    np.testing.assert_allclose(found, numbers(expected), atol=1e-5)


@pytest.mark.backends("torch")
def test_made_to_be_computed_again():
    with keras.RematScope("full"):
        made = block()
    assert all(needs_keras(made, part) for part in parts_of(made))


@pytest.mark.backends("torch")
def test_lora_and_quantized_projections():
    made = block(dropout=0.0)
    plain = numbers(made(X))
    made.self_attention.query_dense.enable_lora(2)
    np.testing.assert_allclose(numbers(made(X)), plain, atol=1e-6)  # B starts with zeros
    added = made.self_attention.query_dense.lora_kernel_b
    added.assign(np.ones(added.shape))
    assert np.abs(numbers(made(X)) - plain).max() > 1e-3
    plain = numbers(made(X))
    made.feed_forward.inner.quantize("int8")
    changed = np.abs(numbers(made(X)) - plain).max()
    assert 0 < changed < 0.1
