"""The kernels of PyTorch against NumPy and the definitions: values, gradients, what dropout draws."""

import gc

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops import operations
from keras_attention.ops.operations import (
    dot_product_attention,
    joined_linear,
    linear,
    reshape,
)
from keras_attention.ops.reference import DEFINITIONS
from tests import oracle
from tests.helpers import numpy

pytestmark = pytest.mark.backends("torch")

ROWS, V, D = 5, 67, 72
rng = np.random.default_rng(12)
LABELS = rng.integers(0, V, size=ROWS)
LOGITS = (3 * rng.normal(size=(ROWS, V))).astype("float32")
UPSTREAM = rng.normal(size=ROWS).astype("float32")
# A gradient is one rounding away from the other: 2^-8 of it in bfloat16.
TOLERANCE = {"float32": 5e-6, "bfloat16": 0.02}
BOTH_DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE))


def tensor(array, dtype="float32"):
    """A leaf that gradients flow to."""
    return ops.cast(ops.convert_to_tensor(array), dtype).detach().requires_grad_()


def normal(*shape):
    return rng.normal(size=shape).astype("float32")


def assert_same(got, expected, dtype):
    """Equal dtypes and shapes; numbers within the tolerance, which grows with the largest."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    scale = max(np.abs(numpy(expected)).max(), 1.0)
    np.testing.assert_allclose(
        numpy(got) / scale, numpy(expected) / scale, atol=TOLERANCE[dtype], rtol=0
    )


def test_chunks_of_rows_change_no_loss_and_no_gradient(monkeypatch):
    """Of one row, and of two with a rest: those of all rows at once `test_crossentropy` knows."""
    from keras_attention.ops.backends import torch_crossentropy

    def found():
        logits = tensor(LOGITS)
        losses = operations.smoothed_crossentropy(logits, LABELS, 0.9, 0.1 / (V - 1))
        losses.backward(ops.convert_to_tensor(UPSTREAM))
        np.testing.assert_array_equal(numpy(logits), LOGITS)  # Metrics read them afterwards.
        return numpy(losses), numpy(logits.grad)

    wanted = found()
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    for chunk in (1, 2 * V + 1):
        monkeypatch.setattr(torch_crossentropy, "CHUNK_ON_CPU", chunk)
        for got, expected in zip(found(), wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


def test_a_metric_takes_the_normalizers_from_the_loss_of_the_same_logits(monkeypatch):
    import torch

    from keras_attention.ops.backends import torch_crossentropy

    passes = []
    original = torch.logsumexp
    monkeypatch.setattr(torch, "logsumexp", lambda *x, **k: passes.append(1) or original(*x, **k))

    def nll(logits, labels=LABELS):
        got = numpy(operations.token_nll(logits.reshape(ROWS, V), labels).detach())
        rows = numpy(logits.reshape(ROWS, V).detach()).astype("float64")
        expected = [oracle.smoothed_nll(rows[i], labels[i], 0.0) for i in range(ROWS)]
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        return len(passes)

    logits = tensor(LOGITS) * 1.0  # The result of an operation, as a model's are.
    operations.smoothed_crossentropy(logits.reshape(ROWS, V), LABELS, 0.9, 0.1 / (V - 1))
    assert len(passes) == 1
    assert nll(logits) == 1 and nll(logits, (LABELS + 1) % V) == 1
    assert nll(logits.flip(0)) == 2  # Other rows.
    with torch.no_grad():
        logits[2, 3] += 1.0
    assert nll(logits) == 3  # Written to since.
    del logits
    gc.collect()
    assert len(torch_crossentropy._NORMALIZERS) == 0


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@BOTH_DTYPES
def test_linear_equals_the_definition(definitions, relu, with_bias, dtype):
    import torch

    arrays = [normal(2, 3, 5), normal(5, D), *([normal(D)] if with_bias else [])]
    inputs = [tensor(array, dtype) for array in arrays]
    got = linear(*inputs, relu=relu)
    assert definitions == []
    expected = DEFINITIONS["linear"](inputs[0].reshape(6, 5), *inputs[1:], relu=relu)
    assert_same(got, expected.reshape(2, 3, D), dtype)
    upstream = ops.convert_to_tensor(normal(2, 3, D)).to(got.dtype)
    slopes = torch.autograd.grad(got, inputs, upstream)
    expected_slopes = torch.autograd.grad(expected, inputs, upstream.reshape(6, D))
    for slope, expected_slope in zip(slopes, expected_slopes, strict=True):
        assert_same(slope, expected_slope, dtype)


@pytest.mark.parametrize("widths", [(18, 18, 18), (18, 18, 7)])
@pytest.mark.parametrize("with_bias", [False, True])
@BOTH_DTYPES
def test_joined_linear_equals_one_product_after_the_other(definitions, with_bias, widths, dtype):
    import torch

    inputs = tensor(normal(2, 3, 5), dtype)
    kernels = [tensor(normal(5, 4, width), dtype) for width in widths]
    biases = [tensor(normal(4, width), dtype) for width in widths] if with_bias else []
    got = joined_linear(inputs, kernels, biases or None)
    assert definitions == []
    expected = [
        (inputs.reshape(6, 5) @ kernel.reshape(5, -1)).reshape(2, 3, 4, -1) for kernel in kernels
    ]
    expected = [x + b for x, b in zip(expected, biases, strict=True)] if biases else expected
    leaves = [inputs, *kernels, *biases]
    upstream = [ops.convert_to_tensor(normal(*x.shape)).to(x.dtype) for x in expected]
    slopes, expected_slopes = (torch.autograd.grad(x, leaves, upstream) for x in (got, expected))
    for one, other in zip([*got, *slopes], [*expected, *expected_slopes], strict=True):
        assert_same(one, other, dtype)


def test_linear_promotes_dtypes_as_the_definition():
    inputs, kernel, bias = tensor(normal(4, 5), "bfloat16"), normal(5, D), normal(D)
    got = linear(inputs, kernel, bias)
    assert_same(got, DEFINITIONS["linear"](inputs, kernel, bias), "float32")


def attention_masks(T, S, N, B):
    """Masks of every rank, with rows that may attend to nothing."""
    allowed = rng.random((B, N, T, S)) < 0.6
    allowed[1, :, 2] = False
    return [None, allowed, allowed[:, :1], allowed[:, :, :1], allowed[:1, :1], allowed[1, 2, 1:2]]


@pytest.mark.parametrize("kind", range(6))
@BOTH_DTYPES
def test_attention_equals_the_definition(definitions, kind, dtype):
    import torch

    B, T, S, N, K, W = 2, 3, 5, 4, 17, 6
    mask = attention_masks(T, S, N, B)[kind]
    mask = None if mask is None else ops.convert_to_tensor(mask)
    # Views into a wider tensor, as the heads of a fused projection are.
    wide = [normal(B, n, N, w + 3) for n, w in ((T, K), (S, K), (S, W))]
    inputs = [tensor(array, dtype) for array in wide]
    views = [x[..., 3:] for x in inputs]
    factor = ops.convert_to_tensor(normal(B, N, T, S)).to(inputs[0].dtype)
    results = [
        function(*views, mask, 0.3, lambda weights: weights * factor)
        for function in (dot_product_attention, DEFINITIONS["dot_product_attention"])
    ]
    assert definitions == []
    upstream = ops.convert_to_tensor(normal(B, T, N, W)).to(inputs[0].dtype)
    for got, expected in zip(*results, strict=True):
        assert_same(got, expected, dtype)
    # Gradients through the outputs and, as a regularizer might, through the weights.
    slopes = [
        torch.autograd.grad((outputs * upstream).sum() + (weights * factor).sum(), inputs)
        for outputs, weights in results
    ]
    for got, expected in zip(*slopes, strict=True):
        assert_same(got, expected, dtype)
    if mask is not None:
        assert (results[0][1][~mask.expand(B, N, T, S)] == 0.0).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_attention_stays_finite_with_large_scores_and_blind_rows(dtype):
    import torch

    query, key, value = (tensor(200 * normal(2, n, 4, 17), dtype) for n in (3, 5, 5))
    mask = ops.convert_to_tensor(attention_masks(3, 5, 4, 2)[1])
    outputs, weights = dot_product_attention(query, key, value, mask, 0.05)
    slopes = torch.autograd.grad(outputs.sum(), (query, key, value))
    assert all(x.isfinite().all() for x in (outputs, weights, *slopes))
    assert (outputs[1, 2] == 0.0).all() and weights.max() > 0.9
    assert (slopes[0][1, 2] == 0.0).all()


def test_seeds_are_those_that_keras_would_draw():
    from keras_attention.ops.backends.torch_dropout import next_seed

    seed, plain = keras.random.SeedGenerator(7), keras.random.SeedGenerator(7)

    def assert_two_are_the_same():
        for _ in range(2):
            assert list(next_seed(seed)) == plain.next().tolist()
            assert seed.state.value.tolist() == plain.state.value.tolist()

    assert_two_are_the_same()
    assert seed.next().tolist() == plain.next().tolist()  # Keras itself draws in between.
    assert_two_are_the_same()
    for generator in (seed, plain):  # As a checkpoint does.
        generator.state.assign([9, 40])
    assert_two_are_the_same()
    with keras.StatelessScope([(seed.state, seed.state.value)]) as scope:
        assert [next_seed(seed), next_seed(seed)] == [(9, 42), (9, 43)]
        assert scope.get_current_value(seed.state).tolist() == [9, 44]
    assert_two_are_the_same()  # What a scope draws, it keeps to itself.


def test_a_second_forward_pass_draws_what_the_first_drew():
    from keras_attention.ops.backends.torch_dropout import next_seed
    from keras_attention.ops.replay import replaying

    seed = keras.random.SeedGenerator(7)
    assert next_seed(seed) == (7, 0)
    with replaying([seed], [ops.convert_to_tensor([7, 0], dtype="int32")]) as (replay,):
        assert [next_seed(seed), next_seed(seed)] == [(7, 0), (7, 1)]
    assert next_seed(seed) == (7, 1) and replay.draws == 2


def test_traced_programs_and_narrow_inputs_take_the_definitions(monkeypatch, definitions):
    import torch

    wide, narrow = ops.ones((2, 3, 1, D)), ops.ones((2, 3, 1, 63))
    dot_product_attention(wide, wide, wide)
    assert definitions == []
    dot_product_attention(narrow, narrow, narrow)
    assert definitions == ["dot_product_attention"]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    dot_product_attention(wide, wide, wide)
    assert definitions == ["dot_product_attention"] * 2


def test_shapes_of_what_is_no_tensor_yet():
    assert reshape(keras.KerasTensor((2, 3, 5)), (6, 5)).shape == (6, 5)
    assert tuple(reshape(np.ones((2, 3)), (3, -1)).shape) == (3, 2)


def test_mixed_precision_casts_each_weight_once_in_an_update():
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from keras_attention import Adam, LabelSmoothedCrossentropy, Transformer

    class Casts(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.sources = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._to_copy.default and args[0].dtype == torch.float32:
                self.sources.append(args[0].data_ptr())
            return function(*args, **(kwargs or {}))

    model = Transformer(
        V, num_layers=1, hidden_dim=64, intermediate_dim=96, num_heads=2, dtype="mixed_bfloat16"
    )
    model.compile(Adam(0.01), LabelSmoothedCrossentropy(), run_eagerly=True)
    ids = rng.integers(3, V, (2, 4))
    inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    model.train_on_batch(inputs, ids)  # The first asks for shapes, too.
    with Casts() as casts:
        model.train_on_batch(inputs, ids)
    counts = {w.path: casts.sources.count(w.value.data_ptr()) for w in model.trainable_weights}
    # The normalisations take theirs as they are.
    assert {n for path, n in counts.items() if "normalization" not in path} == {1}, counts
    assert max(counts.values()) == 1
