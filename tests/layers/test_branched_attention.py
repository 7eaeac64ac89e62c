"""Branched attention against its equations in NumPy, with exact gradients; the simplex of its weights."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import BranchedAttention, FeedForward, MultiHeadAttention
from keras_attention.layers.masks import causal_mask
from keras_attention.models.branched_attention import RandomSimplex, Simplex, simplex_projection
from tests import branches_oracle
from tests.gradients import gradients
from tests.helpers import numpy

B, T, S, D, N, K, V = 2, 3, 5, 7, 4, 6, 2
F = 72  # Wide enough for the fast kernels; each of four split networks has 18.
rng = np.random.default_rng(12)
QUERY = rng.normal(size=(B, T, D)).astype("float32")
VALUE = rng.normal(size=(B, S, D)).astype("float32")
UPSTREAM = rng.normal(size=(B, T, D)).astype("float32")


def make(branch_feed_forward, **kwargs):
    layer = BranchedAttention(
        N, K, value_dim=V, intermediate_dim=F, branch_feed_forward=branch_feed_forward, **kwargs
    )
    layer.build(QUERY.shape, VALUE.shape)
    for weight in layer.trainable_variables:
        if weight.constraint is None:
            weight.assign(rng.normal(0, 0.5, weight.shape))
    return layer


def written_out(layer, arrays):
    """The oracle with the layer's weights, in the order of its variables."""
    named = {
        v.path.split("branched_attention")[-1]: a
        for v, a in zip(layer.weights, arrays, strict=True)
    }
    by_end = {path.split("/", 1)[1]: array for path, array in named.items()}
    parts = ("query", "key", "value", "attention_output")
    ends = ("kernel", "bias") if "query/bias" in by_end else ("kernel",)
    networks = [
        [
            by_end[f"feed_forward_{i + 1}/{part}/{end}"]
            for part in ("inner", "outer")
            for end in ("kernel", "bias")
        ]
        for i in range(len(layer.feed_forwards))
    ]
    return branches_oracle.branched_attention(
        QUERY.astype("float64"),
        VALUE.astype("float64"),
        [by_end[f"{part}/{end}"] for part in parts for end in ends],
        networks,
        by_end["kappa"],
        by_end["alpha"],
    )


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("branch_feed_forward", ["shared", "split", None])
def test_outputs_and_all_gradients_equal_the_equations(branch_feed_forward, use_bias):
    layer = make(branch_feed_forward, use_bias=use_bias)
    layer.kappa.assign([0.5, 0.0, 0.2, 0.3])  # A branch that is off still has a gradient.
    values = [numpy(v) for v in layer.weights]
    exact = [value.astype("float64") for value in values]
    expected = written_out(layer, exact)
    np.testing.assert_allclose(numpy(layer(QUERY, VALUE)), expected, atol=1e-5, rtol=1e-5)

    others = [v.value for v in layer.non_trainable_variables]

    def total(*weights):
        outputs, _ = layer.stateless_call(weights, others, QUERY, VALUE)
        return ops.sum(ops.multiply(outputs, UPSTREAM))

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        total = tf.function(total)
    trainable = [numpy(v) for v in layer.trainable_variables]
    found = gradients(total, *trainable)
    wanted = branches_oracle.gradients(
        lambda *a: (written_out(layer, list(a)) * UPSTREAM).sum(), exact
    )
    order = [v.path for v in layer.weights]
    for variable, got in zip(layer.trainable_variables, found, strict=True):
        want = wanted[order.index(variable.path)]
        scale = np.abs(want).max()
        if scale < 1e-12:  # A bias of the keys moves all scores alike.
            np.testing.assert_allclose(got, 0, atol=1e-5)
        else:
            np.testing.assert_allclose(got / scale, want / scale, atol=1e-5, err_msg=variable.path)


def test_with_weights_of_one_and_no_network_it_is_multi_head_attention():
    layer = make(None, use_bias=False)
    plain = MultiHeadAttention(N, K, value_dim=V, use_bias=False)
    plain.build(QUERY.shape, VALUE.shape)
    for name in ("query", "key", "value", "output"):
        getattr(plain, f"{name}_dense").kernel.assign(getattr(layer, f"{name}_dense").kernel)
    layer.kappa.assign(np.ones(N))
    layer.alpha.assign(np.ones(N))
    masks = {
        "value_mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool),
        "attention_mask": causal_mask(T, S),
        "return_attention_scores": True,
    }
    got, scores = layer(QUERY, VALUE, **masks)
    expected, expected_scores = plain(QUERY, VALUE, **masks)
    np.testing.assert_allclose(numpy(got), numpy(expected), atol=1e-6)
    np.testing.assert_allclose(numpy(scores), numpy(expected_scores), atol=0)


@pytest.mark.parametrize(
    "branch_feed_forward,more", [("shared", 0), ("split", (N - 1) * D), (None, None)]
)
def test_parameters(branch_feed_forward, more):
    attention = MultiHeadAttention(N, K, value_dim=V)
    attention.build(QUERY.shape, VALUE.shape)
    network = FeedForward(F)
    network.build(QUERY.shape)
    plain = attention.count_params() + (0 if more is None else network.count_params())
    layer = make(branch_feed_forward)
    assert layer.count_params() == plain + 2 * N + (more or 0)
    for weight in (layer.kappa, layer.alpha):
        assert abs(numpy(weight).sum() - 1) < 1e-6 and numpy(weight).min() >= 0


def test_a_seed_makes_parts_that_differ_and_repeat():
    made = []
    for _ in range(2):
        layer = BranchedAttention(
            N, K, intermediate_dim=F, branch_feed_forward="split",
            kernel_initializer=keras.initializers.GlorotUniform(3),
        )  # fmt: skip
        layer.build(QUERY.shape, VALUE.shape)
        made.append(layer)
    one, other = made
    assert all(
        (numpy(a) == numpy(b)).all() for a, b in zip(one.weights, other.weights, strict=True)
    )
    assert (numpy(one.kappa) != numpy(one.alpha)).any()
    first, second = (numpy(part.inner.kernel) for part in one.feed_forwards[:2])
    assert (first != second).any()


@pytest.mark.backends("torch")
@pytest.mark.filterwarnings("ignore:.*does not have a `quantize")
@pytest.mark.parametrize("branch_feed_forward", [None, "shared", "split"])
def test_quantized_kernels_of_branches_are_refused(branch_feed_forward):
    """Eight bits without their scale would be numbers a hundred times as large."""
    inputs, x = [keras.Input((T, D)), keras.Input((S, D))], [QUERY, VALUE]
    model = keras.Model(inputs, make(branch_feed_forward)(*inputs))
    expected = numpy(model(x))
    left_out = ["attention_output", "inner", "outer"]
    model.quantize("int8", filters=lambda layer: layer.name not in left_out)
    assert 0 < np.abs(numpy(model(x)) - expected).max() < 0.1 * np.abs(expected).max()
    model.quantize("int8", filters="attention_output")
    with pytest.raises(ValueError, match="Received: quantized attention_output. Make the model"):
        model(x)


@pytest.mark.backends("torch")
def test_a_width_that_the_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="multiple.*dim=70, num_heads=4"):
        BranchedAttention(N, K, intermediate_dim=70, branch_feed_forward="split")


@pytest.mark.parametrize(
    "vector,expected",
    [
        ([0.5, 0.8, -0.2], [0.35, 0.65, 0]),
        ([2.0, 0, 0], [1, 0, 0]),
        ([0.1] * 4, [0.25] * 4),
        ([0.6, 0.6, 0.6, -1], [1 / 3, 1 / 3, 1 / 3, 0]),
        ([-3.0, -1.0], [0, 1]),
        ([7.0], [1]),
    ],
)
def test_vectors_worked_out_by_hand(vector, expected):
    got = numpy(simplex_projection(np.array(vector, "float32")))
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_it_is_the_nearest_point(scale):
    rng = np.random.default_rng(3)
    for _ in range(20):
        vector = (scale * rng.normal(size=6)).astype("float32")
        point = numpy(simplex_projection(vector)).astype("float64")
        assert point.min() >= 0 and abs(point.sum() - 1) < 1e-6
        # Of a convex set the nearest point has every other one on its far side.
        corners = np.eye(6)
        assert ((corners - point) @ (vector - point)).max() <= 1e-5 * max(scale, 1)


def test_what_is_on_the_simplex_stays_bit_by_bit():
    rng = np.random.default_rng(4)
    for size in (2, 8, 16, 33):
        vector = rng.uniform(size=size).astype("float32")
        vector = numpy(simplex_projection(vector / vector.sum()))
        assert (numpy(Simplex()(vector)) == vector).all()


def test_random_starts_are_on_the_simplex_and_follow_the_seed():
    starts = [numpy(RandomSimplex(seed)((9,))) for seed in (1, 1, 2)]
    assert abs(starts[0].sum() - 1) < 1e-6 and starts[0].min() > 0
    assert (starts[0] == starts[1]).all() and (starts[0] != starts[2]).any()
    assert np.ptp(starts[0]) > 0.01
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Simplex()))
    assert isinstance(again, Simplex)
    assert ops.ndim(again(starts[2])) == 1
