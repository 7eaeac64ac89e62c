"""A float64 model computes everything in float64: in graphs, eagerly, and as NumPy does."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    BranchedAttention,
    LabelSmoothedCrossentropy,
    Perplexity,
    PositionalEncoding,
    Transformer,
)
from keras_attention.ops.compile import compile_for_inference
from keras_attention.ops.operations import global_norm
from tests import branches_oracle, oracle
from tests.models.numpy_transformer import ssru as numpy_ssru
from tests.models.numpy_transformer import teacher_forced_logits

ON_TORCH = (
    keras.backend.backend() == "torch"
)  # Elsewhere each case is compiled: one has all that computes.
# All wide enough for the fast forms, D and K no squares: their roots have digits that float32 lacks.
V, L, D, F, N, B, T, S = 71, 1, 66, 69, 2, 2, 3, 5
SOURCE = np.array([[5, 6, 7, 8, 1], [70, 11, 1, 0, 0]])
TARGET = np.array([[0, 3, 4], [0, 66, 12]])
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
LABELS = np.array([[3, 4, 1], [66, 1, 0]])


@pytest.fixture(autouse=True)
def float64():
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else contextlib.nullcontext():
        yield


def model_of(**options):
    arguments = {"num_layers": L, "hidden_dim": D, "intermediate_dim": F, "num_heads": N, "seed": 4}
    return Transformer(V, **{**arguments, "dropout": 0.0, "dtype": "float64", **options})


def array(tensor):
    found = ops.convert_to_numpy(tensor)
    assert found.dtype == np.float64
    return found


def close(found, expected):
    np.testing.assert_allclose(array(found), expected, rtol=1e-12, atol=1e-12)


def test_logits_loss_and_metric_are_those_of_numpy_in_graphs_and_eagerly():
    model = model_of()

    def weight_named(path):
        return array(next(w for w in model.weights if w.path.endswith(path)))

    expected = oracle.transformer(SOURCE, TARGET, weight_named, L)
    graph = compile_for_inference(lambda x: model(x, training=False), model, any_shape=True)
    logits = model(INPUTS)
    close(logits, expected)
    close(graph(INPUTS), expected)
    loss = LabelSmoothedCrossentropy()
    weight = np.array([[0.1, 0.7, 0.3], [0.9, 1.1, 5.0]])  # the last is of padding
    losses = [oracle.smoothed_nll(expected[i], LABELS[i], 0.1) for i in np.ndindex(2, 3)]
    real = np.where(LABELS == 0, 0.0, weight)
    mean = (np.reshape(losses, (2, 3)) * real).sum() / real.sum()
    close(loss(LABELS, logits, weight), mean)
    graph = compile_for_inference(lambda y, x, w: loss(y, x, w), model)
    close(graph(LABELS, logits, weight), mean)
    metric = Perplexity(dtype="float64")
    metric.update_state(LABELS, logits)
    nll = [oracle.smoothed_nll(expected[i], LABELS[i], 0.0) for i in np.ndindex(2, 3)]
    close(metric.result(), np.exp(np.mean(nll[:5])))


def test_cells_biases_and_two_vocabularies_are_those_of_numpy():
    options = {"decoder_cell": "ssru", "use_logits_bias": True, "final_normalization": True}
    model = model_of(**options, target_vocabulary_size=73, suppressed_token_ids=(2,))
    for weight in model.trainable_weights:
        weight.assign(array(weight) + 0.1 * np.random.default_rng(8).normal(size=weight.shape))
    expected = teacher_forced_logits(model.spec(), SOURCE, TARGET)
    close(model(INPUTS), expected)
    cache, memory = model.initial_cache(B, 1, T), model.encode(SOURCE)
    for t in range(T):
        logits, cache = model.decode_step(TARGET[:, t : t + 1], t, memory, cache)
        close(logits[:, 0, 3:], expected[:, t, 3:])
        assert keras.backend.standardize_dtype(cache[0]["state"].dtype) == "float64"
    cell = model.decoder_blocks[0].self_attention
    x = np.random.default_rng(9).normal(size=(1, T, D))
    mask = np.array([[True, False, True]])
    close(cell(x, mask=mask)[:, ::2], numpy_ssru(x[:, ::2], cell.spec()))


def test_a_step_of_decoding_gives_the_models_logits():
    model = model_of()
    memory, cache = model.encode(SOURCE), model.initial_cache(B, 1, T)
    expected = array(model(INPUTS))
    for index in range(T):
        logits, cache = model.decode_step(TARGET[:, index : index + 1], index, memory, cache)
        close(logits[:, 0], expected[:, index])


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_positions_known_only_in_the_graph_have_all_digits(layout):
    layer = PositionalEncoding(layout, dtype="float64")
    zeros = np.zeros((1, 300, 14))
    expected = array(layer(zeros))
    if layout == "interleaved":
        table = np.array([oracle.position(p, 14) for p in range(300)])
        np.testing.assert_allclose(expected[0], table, atol=1e-12)
    start = ops.convert_to_tensor(np.array(7, "int32"))
    np.testing.assert_allclose(array(layer(zeros[:, 7:], start)), expected[:, 7:], atol=1e-12)


@pytest.mark.parametrize("branches", ["split", *["shared", None] * ON_TORCH])
def test_branches_have_all_digits(branches):
    layer = BranchedAttention(
        3, 22, 66 * 3, branches, dtype="float64", bias_initializer="glorot_uniform"
    )
    rng = np.random.default_rng(3)
    query, value = rng.normal(size=(B, T, D)), rng.normal(size=(B, S, D))
    layer.build(query.shape, value.shape)
    kinds = (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense)
    weights = [array(w) for dense in kinds for w in (dense.kernel, dense.bias)]
    networks = [
        [array(w) for w in (n.inner.kernel, n.inner.bias, n.outer.kernel, n.outer.bias)]
        for n in layer.feed_forwards
    ]
    kappa, alpha = array(layer.kappa), array(layer.alpha)
    assert abs(kappa.sum() - 1) < 1e-12
    moved = kappa + rng.normal(size=3)
    assert abs(array(layer.kappa.constraint(ops.convert_to_tensor(moved))).sum() - 1) < 1e-12
    expected = branches_oracle.branched_attention(query, value, weights, networks, kappa, alpha)
    close(layer(query, value), expected)
    close(compile_for_inference(layer, layer)(query, value), expected)


def test_the_norm_of_gradients_has_all_digits():
    parts = [np.random.default_rng(4).normal(size=shape) for shape in ((70, 66), (69,))]
    close(
        global_norm([ops.convert_to_tensor(part) for part in parts]),
        np.sqrt(sum((part**2).sum() for part in parts)),
    )


@pytest.mark.parametrize("steps", [2, *[1] * ON_TORCH])
def test_an_update_is_that_of_the_loss_in_float64(steps):
    """Plain descent by a rate of 1: the update is the gradient, of the loss over both slices."""
    model = model_of(use_attention_bias=True)
    model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossentropy(), accumulation_steps=steps)
    before = [array(w) for w in model.trainable_weights]
    model.fit(INPUTS, LABELS, batch_size=2, verbose=0)
    gradients = [b - array(w) for b, w in zip(before, model.trainable_weights, strict=True)]
    direction = [np.random.default_rng(5).normal(size=w.shape) for w in before]
    slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
    step, values = 1e-5, []
    for sign in (1, -1):
        for weight, value, d in zip(model.trainable_weights, before, direction, strict=True):
            weight.assign(value + sign * step * d)
        values.append(float(LabelSmoothedCrossentropy()(LABELS, model(INPUTS))))
    # Float32 anywhere would leave an error of about 1e-2 in the difference.
    assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-6)


def test_jax_without_its_64_bit_numbers_refuses():
    if keras.backend.backend() != "jax":
        pytest.skip("JAX alone makes float32 of float64")
    import jax

    with jax.enable_x64(False), pytest.raises(ValueError, match=r"jax_enable_x64.*float64"):
        model_of()
