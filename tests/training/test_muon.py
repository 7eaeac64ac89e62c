"""Muon against its formula on singular values, in NumPy."""

import keras
import numpy as np
import pytest

from keras_attention import Adam, Muon, Transformer
from keras_attention.training.muon import orthogonalized


def on_singular_values(matrix, steps):
    """What the Newton-Schulz steps do, said of singular values: an odd polynomial, again and again."""
    u, s, v = np.linalg.svd(np.asarray(matrix, "float64"), full_matrices=False)
    s = s / np.sqrt((s**2).sum())
    for _ in range(steps):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ np.diag(s) @ v


def formula(matrix, gradients, rate, momentum=0.95, decay=0.05, steps=5):
    """Jordan et al. 2024 with the scale and the decay of Liu et al. 2025."""
    average = np.zeros_like(matrix)
    for gradient in gradients:
        average = momentum * average + (1 - momentum) * gradient
        ahead = momentum * average + (1 - momentum) * gradient
        step = 0.2 * np.sqrt(max(matrix.shape)) * on_singular_values(ahead, steps)
        matrix = matrix - rate * step - rate * decay * matrix
    return matrix


@pytest.fixture
def gradients():
    rng = np.random.default_rng(3)
    shapes = ((5, 7), (5, 2, 3), (2, 4, 5), (7,), (6, 5))
    return [[rng.normal(size=shape).astype("float32") for shape in shapes] for _ in range(4)]


def variables_like(gradients):
    """Two-dimensional kernel, kernel into 2 heads, kernel out of 2 heads, bias, embeddings; all of 0.5."""
    paths = ("inner/kernel", "query/kernel", "attention_output/kernel", "inner/bias", "embeddings")
    variables = []
    for path, gradient in zip(paths, gradients[0], strict=True):
        *scope, name = path.split("/")
        with keras.name_scope(scope[0] if scope else "table"):
            variables.append(keras.Variable(np.full(gradient.shape, 0.5, "float32"), name=name))
    return variables


def test_equals_the_formula(gradients):
    variables = variables_like(gradients)
    optimizer = Muon(0.01, matrix_rate=3.0)
    for update in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in update], variables)
    inner, query, output, bias, table = (keras.ops.convert_to_numpy(v) for v in variables)
    columns = list(zip(*gradients, strict=True))
    close = {"rtol": 2e-4, "atol": 2e-5}
    np.testing.assert_allclose(inner, formula(np.full((5, 7), 0.5), columns[0], 0.03), **close)
    for head in range(2):
        expected = formula(np.full((5, 3), 0.5), [g[:, head] for g in columns[1]], 0.03)
        np.testing.assert_allclose(query[:, head], expected, **close)
        expected = formula(np.full((4, 5), 0.5), [g[head] for g in columns[2]], 0.03)
        np.testing.assert_allclose(output[head], expected, **close)

    others = variables_like(gradients)[3:]
    adam = Adam(0.01)
    for update in gradients:
        adam.apply([keras.ops.convert_to_tensor(g) for g in update[3:]], others)
    for value, other in zip((bias, table), others, strict=True):
        np.testing.assert_allclose(value, keras.ops.convert_to_numpy(other), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (2, 4, 9)])
def test_orthogonalized_turns_singular_values_alone(shape):
    matrices = np.random.default_rng(1).normal(size=shape).astype("float32")
    got = keras.ops.convert_to_numpy(orthogonalized(matrices, 5))
    assert got.shape == shape
    parts = (array.reshape(-1, *shape[-2:]) for array in (got, matrices))
    for one, matrix in zip(*parts, strict=True):
        np.testing.assert_allclose(one, on_singular_values(matrix, 5), rtol=1e-3, atol=1e-4)
        values = np.linalg.svd(one)[1]
        assert values.min() > 0.6 and values.max() < 1.3
    assert not keras.ops.convert_to_numpy(orthogonalized(np.zeros(shape, "float32"))).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(gradients, bad):
    variables = variables_like(gradients)
    optimizer = Muon(0.01)
    optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients[0]], variables)
    state = [*variables, *optimizer._momentums, *optimizer._velocities]
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in state]
    gradients[1][1][2, 1, 0] = bad
    optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients[1]])
    for variable, value in zip(state, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), value)
    assert optimizer.first_nonfinite == 2


def test_every_projection_of_a_transformer_is_a_matrix():
    model = Transformer(13, num_layers=1, hidden_dim=8, intermediate_dim=12, num_heads=2, seed=1)
    model.compile(Muon(0.01), "sparse_categorical_crossentropy")
    ids = np.arange(3, 11)[None]
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    before = {w.path: keras.ops.convert_to_numpy(w).copy() for w in model.trainable_weights}
    model.fit(inputs, ids, verbose=0)
    rms = {}
    for weight in model.trainable_weights:
        change = keras.ops.convert_to_numpy(weight) - before[weight.path] * (1 - 0.02 * 0.05)
        if weight.path.endswith("kernel"):
            rms[weight.path] = float(np.sqrt((change**2).mean()))
    assert len(rms) == 4 + 2 + 8 + 2
    # Adam's first step would be 0.01 everywhere. Here it is 0.2 x 0.02 if all singular values are near 1;
    # those of gradients of low rank stay small.
    assert all(0.25 * 0.2 * 0.02 < value < 1.3 * 0.2 * 0.02 for value in rms.values()), rms


def test_config_round_trip():
    optimizer = Muon(0.2, 3.0, 0.9, 0.1, 4, clipnorm=1.0)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(copy, Muon) and copy.get_config() == optimizer.get_config()
    assert (copy.matrix_rate, copy.matrix_momentum, copy.matrix_decay) == (3.0, 0.9, 0.1)
    assert copy.newton_schulz_steps == 4 and copy.beta_2 == 0.98


@pytest.mark.parametrize(
    "arguments",
    [{"matrix_momentum": 1.0}, {"matrix_rate": -1.0}, {"matrix_decay": -0.1}],
)
def test_numbers_out_of_range(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=name):
        Muon(**arguments)
