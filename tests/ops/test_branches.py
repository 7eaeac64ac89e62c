"""The sum of the branches: each backend's kernel and the definition against NumPy, gradients exact."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops import reference
from keras_attention.ops.operations import sum_of_branches
from tests import branches_oracle
from tests.gradients import compiled, gradients
from tests.helpers import numpy

# Wide enough for the fast kernels; on PyTorch more rows than are computed at once.
R, M, V, F = 261, 3, 2, 65
rng = np.random.default_rng(11)
INPUTS = rng.normal(size=(R, M, V)).astype("float32")
KERNELS = rng.normal(size=(M, V, F)).astype("float32")
BIASES = rng.normal(size=(M, F)).astype("float32")
# A branch that is off still learns: its weight has a gradient.
WEIGHTS = np.array([0.7, 0.0, 0.3], "float32")
UPSTREAM = rng.normal(size=(R, F)).astype("float32")
ARRAYS = (INPUTS, KERNELS, BIASES, WEIGHTS)


def written_out(inputs, kernels, biases, weights):
    return sum(
        weights[i] * branches_oracle.relu(inputs[:, i] @ kernels[i] + biases[i]) for i in range(M)
    )


def assert_close(got, expected, tolerance):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(numpy(got) / scale, expected / scale, atol=tolerance)


@pytest.fixture(scope="module")
def exact():
    arrays = [array.astype("float64") for array in ARRAYS]
    # Gradients of some rows only: the oracle costs a call for each number.
    rows = [0, 127, 128, 255, 256, 260]

    def total(*arrays):
        return (written_out(*arrays) * UPSTREAM).sum()

    by_weight = branches_oracle.gradients(lambda *a: total(arrays[0], *a), arrays[1:])
    few = branches_oracle.gradients(
        lambda part: (written_out(part, *arrays[1:]) * UPSTREAM[rows]).sum(), [arrays[0][rows]]
    )
    return rows, few[0], by_weight


@pytest.mark.parametrize("function", [sum_of_branches, reference.DEFINITIONS["sum_of_branches"]])
def test_outputs_and_gradients_equal_numpy(function, exact):
    outputs = compiled(function)(*(ops.convert_to_tensor(array) for array in ARRAYS))
    assert_close(outputs, written_out(*(array.astype("float64") for array in ARRAYS)), 1e-5)
    found = gradients(
        compiled(lambda *arrays: ops.sum(ops.multiply(function(*arrays), UPSTREAM))), *ARRAYS
    )
    rows, to_rows, to_weights = exact
    assert_close(found[0][rows], to_rows, 1e-5)
    for got, expected in zip(found[1:], to_weights, strict=True):
        assert_close(got, expected, 1e-5)


def test_the_fast_kernel_runs(definitions):
    compiled(sum_of_branches)(*(ops.convert_to_tensor(array) for array in ARRAYS))
    assert definitions == []


def test_narrow_ones_and_other_activations_are_left_to_the_definition(definitions):
    narrow = [INPUTS, KERNELS[..., :5], BIASES[..., :5], WEIGHTS]
    compiled(sum_of_branches)(*(ops.convert_to_tensor(array) for array in narrow))
    tensors = [ops.convert_to_tensor(array) for array in ARRAYS]
    tanh = compiled(lambda *arrays: sum_of_branches(*arrays, keras.activations.tanh))(*tensors)
    assert definitions == ["sum_of_branches"] * 2
    expected = sum(WEIGHTS[i] * np.tanh(INPUTS[:, i] @ KERNELS[i] + BIASES[i]) for i in range(M))
    assert_close(tanh, expected, 1e-5)


def test_in_bfloat16_the_sum_is_formed_in_float32():
    half = [ops.cast(array, "bfloat16") for array in ARRAYS[:3]]
    outputs = compiled(sum_of_branches)(*half, ops.convert_to_tensor(WEIGHTS))
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    rounded = [numpy(array).astype("float64") for array in half]
    assert_close(outputs, written_out(*rounded, WEIGHTS), 0.01)

    def total(inputs, kernels, biases, weights):
        parts = [ops.cast(array, "bfloat16") for array in (inputs, kernels, biases)]
        return ops.sum(
            ops.multiply(ops.cast(sum_of_branches(*parts, weights), "float32"), UPSTREAM)
        )

    arrays = [*(array.astype("float32") for array in rounded), WEIGHTS]
    exact = gradients(lambda *a: ops.sum(ops.multiply(sum_of_branches(*a), UPSTREAM)), *arrays)
    for got, expected in zip(gradients(compiled(total), *arrays), exact, strict=True):
        assert_close(got, expected, 0.03)
