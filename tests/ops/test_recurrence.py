"""The scan of a linear recurrence against a loop."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.recurrence import linear_recurrence
from tests.gradients import gradients

B, D = 2, 3


def loop(decay, inputs):
    state, found = np.zeros((B, D)), []
    for t in range(decay.shape[1]):
        state = decay[:, t] * state + inputs[:, t]
        found.append(state)
    return np.stack(found, axis=1)


def drawn(length):
    random = np.random.default_rng(length)
    decay = random.uniform(0, 1, (B, length, D))
    return decay, *random.normal(size=(2, B, length, D))


def loop_gradients(decay, inputs, upstream):
    """Backwards, one position after the other."""
    states, reached = loop(decay, inputs), np.zeros((B, D))
    of_decay, of_inputs = np.zeros_like(decay), np.zeros_like(inputs)
    for t in reversed(range(decay.shape[1])):
        reached = upstream[:, t] + (decay[:, t + 1] * reached if t + 1 < decay.shape[1] else 0.0)
        of_decay[:, t] = reached * (states[:, t - 1] if t else 0.0)
        of_inputs[:, t] = reached
    return of_decay, of_inputs


# A compiler compiles each length: one, a power of two, and another.
@pytest.mark.parametrize("length", [1, 8, 21, *[2, 3, 7] * (keras.backend.backend() == "torch")])
def test_equals_a_loop_forwards_and_backwards(length):
    decay, inputs, upstream = drawn(length)
    singles = [x.astype("float32") for x in (decay, inputs)]
    found = ops.convert_to_numpy(linear_recurrence(*singles))
    np.testing.assert_allclose(found, loop(decay, inputs), atol=2e-6)
    weights = ops.convert_to_tensor(upstream.astype("float32"))
    got = gradients(lambda *x: ops.sum(linear_recurrence(*x) * weights), *singles)
    for mine, wanted in zip(got, loop_gradients(decay, inputs, upstream), strict=True):
        np.testing.assert_allclose(mine, wanted, atol=5e-6)


def test_gates_that_are_open_or_closed_give_finite_numbers_and_gradients():
    """A product of a thousand decays is 0 or 1, and no division undoes it."""
    decay = np.zeros((B, 1000, D), "float32")
    decay[0] = 1.0
    inputs = np.ones_like(decay)
    found = ops.convert_to_numpy(linear_recurrence(decay, inputs))
    assert found[0, -1].tolist() == [1000.0] * D and (found[1] == 1.0).all()
    for gradient in gradients(lambda *x: ops.sum(linear_recurrence(*x)), decay, inputs):
        assert np.isfinite(gradient).all()


@pytest.mark.backends("tensorflow")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_graph_for_any_length(jit_compile):
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, None, D))] * 3, jit_compile=jit_compile)
    def found(decay, inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch([decay, inputs])
            states = linear_recurrence(decay, inputs)
            total = tf.reduce_sum(states * upstream)
        return states, *tape.gradient(total, [decay, inputs])

    for length in (1, 5, 8):
        drawn_now = drawn(length)
        got = found(*(tf.constant(x, "float32") for x in drawn_now))
        wanted = loop(*drawn_now[:2]), *loop_gradients(*drawn_now)
        for mine, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, atol=5e-6)


@pytest.mark.backends("tensorflow", "torch")
def test_float64_stays_float64():
    decay, inputs, _ = drawn(6)
    found = linear_recurrence(ops.convert_to_tensor(decay), ops.convert_to_tensor(inputs))
    assert keras.backend.standardize_dtype(found.dtype) == "float64"
    np.testing.assert_allclose(ops.convert_to_numpy(found), loop(decay, inputs), rtol=1e-14)
