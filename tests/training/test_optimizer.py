"""Adam against its formula in NumPy."""

import keras
import numpy as np
import pytest

from keras_attention import Adam


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
