"""The loss against one token at a time in NumPy, and the vectors of the authors' smoothing."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import LabelSmoothedCrossentropy, Perplexity
from tests import oracle

B, T, V = 2, 5, 7
rng = np.random.default_rng(4)
LABELS = np.array([[3, 6, 1, 0, 0], [2, 5, 4, 6, 1]])
LOGITS = (3 * rng.normal(size=(B, T, V))).astype("float32")


def expected_loss(labels, logits, epsilon):
    """Every token weighs the same: the mean over sentences of their means would differ."""
    tokens = [
        oracle.smoothed_nll(logits[index].astype("float64"), labels[index], epsilon)
        for index in np.ndindex(labels.shape)
        if labels[index] != 0
    ]
    return sum(tokens) / len(tokens)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.2])
def test_equals_one_token_at_a_time(epsilon):
    loss = LabelSmoothedCrossentropy(epsilon)
    assert float(loss(LABELS, LOGITS)) == pytest.approx(
        expected_loss(LABELS, LOGITS, epsilon), rel=1e-5
    )


def test_vectors_of_the_authors():
    labels, logits = np.array([[2]]), np.array([[[1.0, 2.0, 3.0, 4.0]]], "float32")
    assert float(LabelSmoothedCrossentropy(0.0)(labels, logits)) == pytest.approx(1.4401896986)
    assert float(LabelSmoothedCrossentropy(0.1)(labels, logits)) == pytest.approx(1.5068563652)
    smoothed = LabelSmoothedCrossentropy(0.1, subtract_minimum=True)
    assert float(smoothed(labels, logits)) == pytest.approx(1.0719121630, rel=1e-6)
    # Plain smoothing of strength e is the authors' of strength e (V - 1) / V.
    plain = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    assert float(plain(np.eye(4)[labels], logits)) == pytest.approx(1.4901896986)
    assert float(LabelSmoothedCrossentropy(0.075)(labels, logits)) == pytest.approx(1.4901896986)


@pytest.mark.parametrize(
    "size,minimum", [(4, 0.4349442023), (37000, 1.3769475898), (40960, 1.3871156579)]
)
def test_the_least_value(size, minimum):
    assert LabelSmoothedCrossentropy(0.1).minimum(size) == pytest.approx(minimum, rel=1e-9)


def test_padding_counts_for_nothing():
    loss = LabelSmoothedCrossentropy()
    before = float(loss(LABELS, LOGITS))
    changed = LOGITS.copy()
    for value in (100.0 * rng.normal(size=(2, V)), np.nan):
        changed[0, 3:] = value
        assert float(loss(LABELS, changed)) == before
    changed[0, 1, 0] = np.nan  # of a real token
    assert np.isnan(float(loss(LABELS, changed)))
    padded = np.concatenate([LABELS, np.zeros((B, 3), int)], axis=1)
    wider = np.concatenate([LOGITS, np.ones((B, 3, V), "float32")], axis=1)
    assert float(loss(padded, wider)) == pytest.approx(before, rel=1e-6)


def test_sample_weights():
    loss = LabelSmoothedCrossentropy(0.0)
    only_second = float(loss(LABELS, LOGITS, sample_weight=np.array([0.0, 1.0])))
    assert only_second == pytest.approx(float(loss(LABELS[1:], LOGITS[1:])), rel=1e-5)
    weights = np.zeros((B, T))
    weights[1, 2] = 2.0
    single = oracle.smoothed_nll(LOGITS[1, 2].astype("float64"), LABELS[1, 2], 0.0)
    assert float(loss(LABELS, LOGITS, sample_weight=weights)) == pytest.approx(single, rel=1e-5)
    small = np.full((B, T), 0.01)  # of all tokens together less than 1
    assert float(loss(LABELS, LOGITS, sample_weight=small)) == pytest.approx(
        float(loss(LABELS, LOGITS)), rel=1e-5
    )


@pytest.mark.parametrize("shape", [(3,), (3, 2, 3)], ids=str)
def test_a_weight_for_each_row_of_labels_of_any_rank(shape):
    labels = rng.integers(1, V, shape)
    logits = rng.normal(size=(*shape, V)).astype("float32")
    rows = np.array([0.5, 0.0, 3.0])
    total = weight = 0.0
    for index in np.ndindex(shape):
        nll = oracle.smoothed_nll(logits[index].astype("float64"), labels[index], 0.1)
        total, weight = total + rows[index[0]] * nll, weight + rows[index[0]]
    got = LabelSmoothedCrossentropy(0.1)(labels, logits, sample_weight=rows)
    assert float(got) == pytest.approx(total / weight, rel=1e-5)


def test_nothing_but_padding_is_zero_not_nan():
    assert float(LabelSmoothedCrossentropy()(np.zeros((1, 2), int), LOGITS[:1, :2])) == 0.0


def test_gradient_is_that_of_the_formula():
    """p - q, over the number of real tokens; zero at padding."""
    model = keras.Sequential([keras.Input(batch_shape=(B, T, V)), Passing()])
    model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossentropy(0.1))
    model.layers[0].set_weights([LOGITS.copy()])
    model.train_on_batch(np.zeros((B, T, V), "float32"), LABELS)
    gradient = LOGITS - model.layers[0].get_weights()[0]
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    target = np.where(np.arange(V) == LABELS[..., None], 0.9, 0.1 / (V - 1))
    expected = (probabilities - target) * (LABELS != 0)[..., None] / (LABELS != 0).sum()
    np.testing.assert_allclose(gradient, expected, atol=2e-6)


class Passing(keras.layers.Layer):
    """Adds a weight of the shape of the batch, so that the loss has a gradient to show."""

    def build(self, input_shape):
        self.shift = self.add_weight(shape=(B, T, V), initializer="zeros")

    def call(self, inputs):
        return inputs + self.shift


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_logits_of_low_precision_lose_nothing_in_the_sum(dtype):
    """5,000 equal logits: the normaliser must be summed in float32."""
    size = 5000
    logits = ops.cast(np.zeros((1, 1, size), "float32"), dtype)
    got = float(LabelSmoothedCrossentropy(0.0)(np.array([[7]]), logits))
    assert got == pytest.approx(np.log(size), rel=1e-5)


@pytest.mark.parametrize(
    ("dtype", "pad_token_id"), [("int8", 300), ("uint8", 0), ("uint8", -100), ("uint16", -100)]
)
def test_labels_may_be_of_any_integer_type(dtype, pad_token_id):
    """Also of one that cannot hold the size of the vocabulary, or the id of padding."""
    logits = rng.normal(size=(1, 2, 256)).astype("float32")
    labels = np.array([[120, 0]])
    real = [position for position, label in enumerate(labels[0]) if label != pad_token_id]
    expected = np.mean([oracle.smoothed_nll(logits[0, t], labels[0, t], 0.0) for t in real])
    narrow = ops.convert_to_tensor(labels.astype(dtype))
    got = LabelSmoothedCrossentropy(0.0, pad_token_id)(narrow, logits)
    assert float(got) == pytest.approx(expected, rel=1e-5)
    metric = Perplexity(pad_token_id=pad_token_id)
    metric.update_state(narrow, logits)
    assert float(metric.result()) == pytest.approx(np.exp(expected), rel=1e-5)


def test_labels_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"labels \(2, 4\), predictions \(2, 5, 7\)"):
        LabelSmoothedCrossentropy()(LABELS[:, :4], LOGITS)


@pytest.mark.parametrize("wrong", [V, -1, 2.5])
def test_labels_outside_the_vocabulary_are_named(wrong):
    loss = LabelSmoothedCrossentropy(0.0, pad_token_id=V + 3)
    least_most_and_padding = np.array([[0, V - 1, V + 3]])
    expected = np.mean([oracle.smoothed_nll(LOGITS[0, t], t * (V - 1), 0.0) for t in range(2)])
    assert float(loss(least_most_and_padding, LOGITS[:1, :3])) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=rf"from 0 to {V - 1}, or .*={V + 3}\. .*: \[{wrong}"):
        loss(np.array([[1, wrong]]), LOGITS[:1, :2])


@pytest.mark.parametrize("shape", [(B,), (B, 1), (1, T), (1, 1), ()])
def test_sample_weights_are_spread_over_tokens(shape):
    weights = np.random.default_rng(3).uniform(0.5, 2.0, size=shape)
    whole = np.broadcast_to(weights[:, None] if shape == (B,) else weights, (B, T))
    loss = LabelSmoothedCrossentropy(0.1)
    given = weights if shape else float(weights)
    assert float(loss(LABELS, LOGITS, sample_weight=given)) == pytest.approx(
        float(loss(LABELS, LOGITS, sample_weight=whole)), rel=1e-5
    )


@pytest.mark.parametrize("shape", [(T,), (B, T - 1), (B, T, 1)])
def test_sample_weights_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"`sample_weight` must have .*Received: sample_weight \("):
        LabelSmoothedCrossentropy()(LABELS, LOGITS, sample_weight=np.ones(shape))


def test_round_trip():
    loss = LabelSmoothedCrossentropy(0.2, pad_token_id=3, subtract_minimum=True, name="mine")
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(copy, LabelSmoothedCrossentropy)
    assert (copy.label_smoothing, copy.pad_token_id, copy.subtract_minimum, copy.name) == (
        0.2, 3, True, "mine",
    )  # fmt: skip
