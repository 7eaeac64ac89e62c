"""Compiled inference: present weights, one program a shape, no gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.compile import compile_for_inference

BACKEND = keras.backend.backend()


@pytest.fixture
def layer():
    layer = keras.layers.Dense(2, bias_initializer="ones")
    layer.build((None, 3))
    return layer


def test_reads_the_weights_at_each_call(layer):
    run = compile_for_inference(lambda x: layer(x), layer)
    x = np.arange(12, dtype="float32").reshape(4, 3)
    for seed in (1, 2):
        kernel = np.random.default_rng(seed).standard_normal((3, 2)).astype("float32")
        layer.kernel.assign(kernel)
        np.testing.assert_allclose(ops.convert_to_numpy(run(x)), x @ kernel + 1, rtol=1e-5)


def test_pytrees_in_and_out(layer):
    run = compile_for_inference(
        lambda tree, scale: {"sum": tree["a"] + scale * tree["b"][0]}, layer
    )
    got = run({"a": np.ones((2, 3), "float32"), "b": [np.full((2, 1), 4.0, "float32")]}, 0.5)
    np.testing.assert_array_equal(ops.convert_to_numpy(got["sum"]), np.full((2, 3), 3.0))


FOR_ALL = pytest.param(
    True, (4, 5, 4, 6, 7, 8), [4, None], marks=pytest.mark.backends("tensorflow")
)


@pytest.mark.backends("tensorflow", "jax")
@pytest.mark.parametrize("any_shape, batches, compiled", [(False, (4, 5, 4, 5), [4, 5]), FOR_ALL])
def test_compiles_each_shape_once_or_one_program_for_all(layer, any_shape, batches, compiled):
    shapes = []

    def function(x):
        shapes.append(tuple(x.shape))
        return layer(x)

    run = compile_for_inference(function, layer, any_shape)
    for rows in batches:
        assert tuple(run(np.zeros((rows, 3), "float32")).shape) == (rows, 2)
    assert shapes == [(rows, 3) for rows in compiled]


@pytest.mark.backends("tensorflow")
def test_many_shapes_are_no_reason_to_warn(layer, caplog):
    run = compile_for_inference(lambda x: layer(x), layer)
    for rows in range(1, 9):
        run(np.zeros((rows, 3), "float32"))
    assert "retracing" not in caplog.text


@pytest.mark.backends("torch")
def test_keeps_no_gradients(layer):
    x = np.ones((4, 3), "float32")
    assert layer(x).requires_grad
    assert not compile_for_inference(lambda x: layer(x), layer)(x).requires_grad


def test_model_without_weights_is_refused():
    with pytest.raises(ValueError, match="'empty' is not built.*Call it once"):
        compile_for_inference(lambda x: x, keras.layers.Dense(2, name="empty"))
