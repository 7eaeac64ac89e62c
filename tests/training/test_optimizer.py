"""Adam against its formula in NumPy."""

import keras
import numpy as np
import pytest

from keras_attention import Adam
from tests.helpers import assert_each


def formula(value, gradients, rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    """Kingma and Ba, with Keras' place for epsilon."""
    m = v = np.zeros_like(value)
    for t, gradient in enumerate(gradients, start=1):
        m = beta_1 * m + (1 - beta_1) * gradient
        v = beta_2 * v + (1 - beta_2) * gradient**2
        corrected = rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        value = value - corrected * m / (np.sqrt(v) + epsilon)
    return value


class Linear(keras.layers.Layer):
    def build(self, input_shape):
        self.w = self.add_weight(shape=(input_shape[-1],), initializer="zeros")

    def call(self, inputs):
        return keras.ops.sum(inputs * self.w, axis=-1)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_updates_in_fit_equal_the_formula(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("torch.compile needs a C++ toolchain and minutes")
    rng = np.random.default_rng(6)
    gradients = rng.normal(size=(5, 3)).astype("float32")
    model = keras.Sequential([keras.Input((3,)), Linear()])
    model.compile(Adam(0.1), loss=lambda y_true, y_pred: y_pred, jit_compile=jit_compile)
    start = np.array([0.5, -1.0, 2.0], "float32")
    model.set_weights([start])
    # The gradient of sum(x * w) is x: each batch of one row is a gradient.
    model.fit(gradients, np.zeros(5), batch_size=1, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        model.get_weights()[0], formula(start.astype("float64"), gradients, 0.1), rtol=2e-5
    )


def test_is_keras_adam_with_the_papers_constants():
    optimizer = Adam()
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(Adam(0.2, clipnorm=1.0)))
    assert (
        isinstance(copy, Adam)
        and copy.clipnorm == 1.0
        and float(copy.learning_rate) == pytest.approx(0.2)
    )


def updated(optimizer, updates, sizes=((3, 5), (7,), (2, 3, 4))):
    """Weights after these updates of variables of ones."""
    variables = [keras.Variable(np.ones(size, "float32")) for size in sizes]
    for gradients in updates:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients], variables)
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


@pytest.fixture
def gradients():
    rng = np.random.default_rng(8)
    sizes = ((3, 5), (7,), (2, 3, 4))
    # From tiny, where epsilon matters, to large.
    scales = (1e-9, 1e-3, 1.0, 30.0, 1e-8)
    return [[(s * rng.normal(size=n)).astype("float32") for n in sizes] for s in scales]


@pytest.mark.parametrize(
    "options",
    [{}, {"amsgrad": True}, {"weight_decay": 0.3}, {"amsgrad": True, "weight_decay": 0.3}],
)
def test_equals_keras_own_adam(gradients, options):
    expected = updated(keras.optimizers.Adam(0.1, 0.9, 0.98, 1e-9, **options), gradients)
    got = updated(Adam(0.1, **options), gradients)
    assert_each(got, expected, rtol=2e-5, atol=1e-6)


def test_records_the_norm_of_the_gradient(gradients):
    optimizer = Adam(0.1)
    assert optimizer.gradient_norm == 0.0
    updated(optimizer, gradients[:4])
    expected = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in gradients[3]))
    assert optimizer.gradient_norm == pytest.approx(expected, rel=1e-5)
    assert optimizer.first_nonfinite == 0


@pytest.mark.parametrize("weight_decay", [None, 0.3])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_keeps_the_weights_before_a_gradient_that_is_not_finite(gradients, bad, weight_decay):
    expected = updated(Adam(0.1, weight_decay=weight_decay), gradients[:2])
    gradients[2][1][4] = bad
    optimizer = Adam(0.1, weight_decay=weight_decay)
    got = updated(optimizer, gradients)  # Two good updates, the bad one, two more.
    assert_each(got, expected)
    assert optimizer.first_nonfinite == 3
    assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == 5
    state = [keras.ops.convert_to_numpy(variable) for variable in optimizer.variables]
    assert all(np.isfinite(value).all() for value in state)


def test_float16_overflow_is_left_to_loss_scaling(gradients):
    inner = Adam(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=1.0)
    gradients[1][0][0, 0] = np.inf
    apply = updated_without_state if keras.backend.backend() == "jax" else updated
    got = apply(optimizer, gradients[:3])
    expected = updated(Adam(0.1), [gradients[0], gradients[2]])
    assert_each(got, expected, rtol=1e-6)
    assert inner.first_nonfinite == 0


def updated_without_state(optimizer, updates):
    """The same in the way of training on JAX, which is the only one of Keras' loss scaling there."""
    variables = [keras.Variable(np.ones(g.shape, "float32")) for g in updates[0]]
    optimizer.build(variables)
    values = [variable.value for variable in variables]
    state = [variable.value for variable in optimizer.variables]
    for gradients in updates:
        tensors = [keras.ops.convert_to_tensor(g) for g in gradients]
        values, state = optimizer.stateless_apply(state, tensors, values)
    for variable, value in zip(optimizer.variables, state, strict=True):
        variable.assign(value)
    return [keras.ops.convert_to_numpy(value) for value in values]
