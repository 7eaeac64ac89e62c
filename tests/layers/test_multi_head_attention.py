"""MultiHeadAttention against NumPy loops, and as a drop-in for Keras' own layer."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import MultiHeadAttention
from tests import oracle
from tests.helpers import numpy

B, T, S, N, K, V, D, E = 2, 3, 5, 4, 7, 6, 10, 9
rng = np.random.default_rng(1)


def array(*shape):
    return rng.normal(size=shape).astype("float32")


def randomize(layer):
    """Give every weight, biases too, numbers that matter."""
    layer.set_weights([array(*w.shape) * 0.4 for w in layer.get_weights()])
    return layer


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_loops_of_the_paper(use_bias, masked):
    layer = MultiHeadAttention(N, K, value_dim=V, use_bias=use_bias)
    query, value, key = array(B, T, D), array(B, S, E), array(B, S, D)
    layer.build(query.shape, value.shape, key.shape)
    randomize(layer)
    allowed = rng.random((B, T, S)) < 0.6 if masked else np.ones((B, T, S), bool)
    outputs, scores = layer(
        query, value, key, attention_mask=allowed if masked else None, return_attention_scores=True
    )
    expected = oracle.multi_head_attention(query, value, layer.get_weights(), allowed, key)
    np.testing.assert_allclose(numpy(outputs), expected[0], atol=2e-5)
    np.testing.assert_allclose(numpy(scores), expected[1], atol=2e-6)


@pytest.mark.parametrize("use_bias", [False, True])
def test_self_attention_in_one_product_equals_three(use_bias):
    layer = MultiHeadAttention(N, K, value_dim=V, use_bias=use_bias)
    x = ops.convert_to_tensor(array(B, T, D))
    layer.build(x.shape, x.shape)
    randomize(layer)
    allowed, weights = np.ones((B, T, T), bool), layer.get_weights()
    for key in (None, x, ops.convert_to_tensor(array(B, T, D))):
        arrays = [numpy(x), numpy(x), weights, allowed, numpy(x if key is None else key)]
        expected = oracle.multi_head_attention(*arrays)[0]
        np.testing.assert_allclose(numpy(layer(x, x, key)), expected, atol=2e-5)


ARGUMENTS = [
    {},
    {"value_dim": V, "use_bias": False},
    {"output_shape": 11},
    {"output_shape": (3, 4)},
    {"sliding_window": 2},
    {"use_gate": True},
    {"dropout": 0.5},
]


# All masks with the first, and all others with both.
MASKED = [
    *itertools.product(ARGUMENTS[:1], (False, True), (False, True)),
    *((arguments, True, True) for arguments in ARGUMENTS[1:]),
]


@pytest.mark.parametrize(("arguments", "causal", "with_mask"), MASKED, ids=str)
def test_is_a_drop_in_for_keras(arguments, causal, with_mask):
    ours = MultiHeadAttention(num_heads=N, key_dim=K, **arguments)
    theirs = keras.layers.MultiHeadAttention(num_heads=N, key_dim=K, **arguments)
    query, value = array(B, T, D), array(B, S, E)
    ours.build(query.shape, value.shape)
    theirs.build(query.shape, value.shape)
    assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
    randomize(ours)
    theirs.set_weights(ours.get_weights())
    mask = rng.random((B, T, S)) < 0.7
    mask[..., 0] = True  # Of rows without any position Keras makes zeros or means, by its path.
    options = {"use_causal_mask": causal, "attention_mask": mask if with_mask else None}
    got = ours(query, value, return_attention_scores=True, **options)
    expected = theirs(query, value, return_attention_scores=True, **options)
    for mine, keras_own in zip(got, expected, strict=True):
        np.testing.assert_allclose(numpy(mine), numpy(keras_own), atol=2e-5)
    # Keras' other path, without scores, fails on JAX where key_dim != value_dim.
    np.testing.assert_allclose(numpy(ours(query, value, **options)), numpy(expected[0]), atol=2e-5)


@pytest.mark.parametrize("axes", [None, (1, 2), -2])
def test_inputs_of_higher_rank_equal_keras(axes):
    ours = MultiHeadAttention(num_heads=N, key_dim=K, attention_axes=axes)
    theirs = keras.layers.MultiHeadAttention(num_heads=N, key_dim=K, attention_axes=axes)
    query, value = array(B, 3, T, D), array(B, 3, S, D)
    ours.build(query.shape, value.shape)
    theirs.build(query.shape, value.shape)
    theirs.set_weights(randomize(ours).get_weights())
    got = ours(query, value, return_attention_scores=True)
    expected = theirs(query, value, return_attention_scores=True)
    assert got[1].shape == expected[1].shape
    for mine, keras_own in zip(got, expected, strict=True):
        np.testing.assert_allclose(numpy(mine), numpy(keras_own), atol=2e-5)


def test_masks_of_higher_rank_equal_keras():
    """Each of 4 rows of a sentence masks positions of its own."""
    ours = MultiHeadAttention(num_heads=2, key_dim=K, attention_axes=2)
    theirs = keras.layers.MultiHeadAttention(num_heads=2, key_dim=K, attention_axes=2)
    query, value = (ops.convert_to_tensor(array(B, 4, length, D)) for length in (T, S))
    ours.build(query.shape, value.shape)
    theirs.build(query.shape, value.shape)
    theirs.set_weights(randomize(ours).get_weights())
    targets, sources = rng.random((B, 4, T)) < 0.6, rng.random((B, 4, S)) < 0.6
    targets[0, 0, 0], sources[..., 0] = False, True
    for masks in (
        {"value_mask": sources},
        {"key_mask": sources},
        {"value_mask": sources, "attention_mask": np.ones((B, 4, T, S), bool)},
        {"query_mask": targets},
    ):
        got, scores = ours(query, value, **masks, return_attention_scores=True)
        expected = numpy(theirs(query, value, **masks))
        # Of queries that are masked Keras makes means.
        np.testing.assert_allclose(numpy(got)[targets], expected[targets], atol=2e-5)
    assert not numpy(scores)[0, 0, :, 0].any()


@pytest.mark.backends("torch")
def test_has_the_arguments_of_keras():
    config = {
        "num_heads": N,
        "key_dim": K,
        "value_dim": V,
        "dropout": 0.25,
        "use_bias": False,
        "output_shape": (D,),
        "attention_axes": (1,),
        "sliding_window": 3,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "kernel_regularizer": "l2",
        "bias_regularizer": "l1",
        "activity_regularizer": "l2",
        "kernel_constraint": "non_neg",
        "bias_constraint": "max_norm",
        "use_gate": True,
        "seed": 5,
        "name": "attention",
    }
    ours = MultiHeadAttention(**config).get_config()
    theirs = keras.layers.MultiHeadAttention(**config).get_config()
    assert ours == theirs
    assert MultiHeadAttention.from_config(ours).get_config() == ours


def test_activity_regularizers_are_not_lost():
    x = array(B, T, D)
    ours = MultiHeadAttention(N, K, activity_regularizer="l2")
    theirs = keras.layers.MultiHeadAttention(N, K, activity_regularizer="l2")
    ours.build(x.shape, x.shape)
    theirs.build(x.shape, x.shape)
    theirs.set_weights(randomize(ours).get_weights())
    ours(x, x)
    theirs(x, x)
    losses = [sum(float(loss) for loss in layer.losses) for layer in (ours, theirs)]
    assert losses[0] > 0.1
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_implicit_keras_masks_equal_keras():
    ids = np.array([[3, 4, 0], [5, 0, 0]])
    other = np.array([[6, 7, 8, 0, 0], [2, 0, 0, 0, 0]])
    embedding = keras.layers.Embedding(9, D, mask_zero=True)
    ours = MultiHeadAttention(N, K)
    theirs = keras.layers.MultiHeadAttention(N, K)
    ours.build((B, T, D), (B, S, D))
    theirs.build((B, T, D), (B, S, D))
    theirs.set_weights(randomize(ours).get_weights())
    results = []
    for layer in (ours, theirs):
        outputs, scores = layer(embedding(ids), embedding(other), return_attention_scores=True)
        results.append((numpy(outputs), numpy(scores), numpy(outputs._keras_mask)))
    assert (results[0][1][0, :, :2, 3:] == 0).all() and results[0][1][0, :, :2, :3].min() > 0
    for mine, keras_own in zip(*results, strict=True):
        np.testing.assert_allclose(mine, keras_own, atol=2e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_row_without_any_allowed_position_is_finite(policy):
    layer = MultiHeadAttention(N, K, dtype=policy, use_bias=False)
    query, value = array(B, T, D) * 30, array(B, S, D) * 30
    mask = np.ones((B, T, S), bool)
    mask[1, 2] = False
    outputs, scores = layer(query, value, attention_mask=mask, return_attention_scores=True)
    outputs, scores = numpy(outputs), numpy(scores)
    assert np.isfinite(outputs).all() and np.isfinite(scores).all()
    assert (outputs[1, 2] == 0).all() and (np.abs(outputs[1, 1]) > 0).any()


def test_the_softmax_runs_in_float32_under_mixed_precision():
    """257 equal scores: 1/257 summed in bfloat16 stalls far below 1."""
    layer = MultiHeadAttention(1, 2, dtype="mixed_bfloat16", use_bias=False)
    length = 257
    value = np.ones((1, length, 4), "float32")
    scores = layer(np.zeros((1, 1, 4), "float32"), value, return_attention_scores=True)[1]
    assert numpy(scores).sum() == pytest.approx(1.0, abs=4e-3)


def test_masked_positions_have_no_influence_and_no_gradient():
    layer = MultiHeadAttention(N, K)
    query, value = array(B, T, D), array(B, S, D)
    mask = np.ones((B, T, S), bool)
    mask[:, :, 3] = False
    before = numpy(layer(query, value, attention_mask=mask))
    changed = value.copy()
    changed[:, 3] += 100.0
    np.testing.assert_array_equal(numpy(layer(query, changed, attention_mask=mask)), before)
    changed[:, 2] += 100.0
    assert np.abs(numpy(layer(query, changed, attention_mask=mask)) - before).max() > 0.1


def test_positions_one_at_a_time_equal_all_at_once():
    layer = MultiHeadAttention(N, K, value_dim=V)
    x = array(B, T, D)
    layer.build(x.shape, x.shape)
    randomize(layer)
    expected = numpy(layer(x, x, use_causal_mask=True))
    length = T + 4  # A cache longer than needed: unwritten rows must not be seen.
    cache = {"key": np.full((B, length, N, K), 50.0, "float32"),
             "value": np.full((B, length, N, V), 50.0, "float32")}  # fmt: skip
    for t in range(T):
        output, cache = layer(x[:, t : t + 1], x[:, t : t + 1], cache=cache, start_index=t)
        np.testing.assert_allclose(numpy(output)[:, 0], expected[:, t], atol=2e-5)


def test_a_prefix_at_once_then_single_positions():
    layer = MultiHeadAttention(N, K)
    x = array(B, S, D)
    expected = numpy(layer(x, x, use_causal_mask=True))
    cache = {name: np.zeros((B, S, N, K), "float32") for name in ("key", "value")}
    output, cache = layer(x[:, :3], x[:, :3], cache=cache, start_index=0)
    np.testing.assert_allclose(numpy(output), expected[:, :3], atol=2e-5)
    output, cache = layer(x[:, 3:4], x[:, 3:4], cache=cache, start_index=3)
    np.testing.assert_allclose(numpy(output)[:, 0], expected[:, 3], atol=2e-5)


def test_rows_share_a_row_of_the_memory():
    beams = 3
    layer = MultiHeadAttention(N, K, value_dim=V)
    query, value = array(B * beams, T, D), array(B, S, D)
    mask = np.ones((B, 1, S), bool)
    mask[1, 0, 2:] = False
    layer.build(query.shape, value.shape)
    options = {"return_attention_scores": True}
    repeated = layer(
        query, np.repeat(value, beams, 0), attention_mask=np.repeat(mask, beams, 0), **options
    )
    memory = layer.project_key_value(ops.convert_to_tensor(value))
    shared = layer(query, cache=memory, attention_mask=mask, **options)
    for got, expected in zip(shared, repeated, strict=True):
        np.testing.assert_allclose(numpy(got), numpy(expected), atol=2e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("given", ["float32", "float64"])
def test_what_is_projected_beforehand_is_what_a_call_projects(policy, given):
    """In the precision of the layer, whatever that of the value is."""
    layer = MultiHeadAttention(N, K, dtype=policy)
    query, value = array(B, T, D), array(B, S, D).astype(given)
    layer.build(query.shape, value.shape)
    state = layer.project_key_value(value)
    assert {ops.dtype(tensor) for tensor in state.values()} == {layer.compute_dtype}
    np.testing.assert_array_equal(numpy(layer(query, cache=state)), numpy(layer(query, value)))


def test_dropout_acts_on_the_weights_in_training_only():
    layer = MultiHeadAttention(N, K, dropout=0.5, seed=3)
    query, value = array(B, T, D), array(B, S, D)
    calm = numpy(layer(query, value))
    np.testing.assert_array_equal(numpy(layer(query, value, training=False)), calm)
    assert np.abs(numpy(layer(query, value, training=True)) - calm).max() > 1e-3
    scores = layer(query, value, training=True, return_attention_scores=True)[1]
    np.testing.assert_allclose(numpy(scores).sum(-1), 1.0, atol=1e-5)  # Returned before dropout.


@pytest.mark.backends("torch")
def test_kernels_start_as_glorot_on_the_matrix():
    layer = MultiHeadAttention(8, 64, use_bias=False)
    layer.build((None, None, 512), (None, None, 512))
    limit = np.sqrt(6 / (512 + 512))
    for kernel in layer.get_weights():
        assert np.abs(kernel).max() <= limit * (1 + 1e-6)
        assert kernel.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)


@pytest.mark.backends("torch")
def test_without_value_and_cache_it_says_what_is_missing():
    layer = MultiHeadAttention(N, K)
    layer.build((B, T, D), (B, S, D))
    with pytest.raises(ValueError, match="`cache`"):
        layer(array(B, T, D), None)


def test_a_head_that_is_switched_off_adds_nothing():
    """Against the sum of the heads' own outputs, row by row."""
    x = array(2, 5, 8)
    layer = MultiHeadAttention(num_heads=3, key_dim=4, value_dim=7)
    whole = numpy(layer(x, x))
    off = np.array([[1.0, 0.0, 1.0], [0.5, 1.0, 0.0]])
    masked = numpy(layer(x, x, head_mask=off))
    kernel = numpy(layer.output_dense.kernel)
    parts = []
    for head in range(3):
        alone = np.zeros_like(kernel)
        alone[head] = kernel[head]
        layer.output_dense.kernel.assign(alone)
        parts.append(numpy(layer(x, x)))
    np.testing.assert_allclose(sum(parts), whole, atol=1e-5)
    expected = sum(off[:, head, None, None] * part for head, part in enumerate(parts))
    np.testing.assert_allclose(masked, expected, atol=1e-5)
