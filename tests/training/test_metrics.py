"""Accuracy and perplexity of tokens against counting."""

import keras
import numpy as np
import pytest

from keras_attention import Perplexity, TokenAccuracy
from tests import oracle

V = 6
rng = np.random.default_rng(5)
BATCHES = [
    (np.array([[3, 1, 0], [5, 2, 1]]), rng.normal(size=(2, 3, V)).astype("float32")),
    (np.array([[4, 0]]), rng.normal(size=(1, 2, V)).astype("float32")),
]


def tokens():
    for labels, logits in BATCHES:
        for index in np.ndindex(labels.shape):
            if labels[index]:
                yield labels[index], logits[index].astype("float64")


def updated(metric):
    for labels, logits in BATCHES:
        metric.update_state(labels, logits)
    return float(metric.result())


def test_perplexity_is_unsmoothed_and_per_token():
    nll = [oracle.smoothed_nll(logits, label, 0.0) for label, logits in tokens()]
    assert len(nll) == 6
    assert updated(Perplexity()) == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)


def test_accuracy_counts_real_tokens():
    hits = [int(label == logits.argmax()) for label, logits in tokens()]
    assert 0 < sum(hits) < len(hits)
    assert updated(TokenAccuracy()) == pytest.approx(np.mean(hits))


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_another_padding_id_and_round_trip(metric):
    one = metric(pad_token_id=5)
    copy = keras.metrics.deserialize(keras.metrics.serialize(one))
    assert isinstance(copy, metric) and copy.pad_token_id == 5
    labels, logits = BATCHES[0]
    swapped = np.where(labels == 0, 5, np.where(labels == 5, 0, labels))
    order = [5, 1, 2, 3, 4, 0]
    one.update_state(swapped, logits[..., order])
    plain = metric()
    plain.update_state(labels, logits)
    assert float(one.result()) == pytest.approx(float(plain.result()), rel=1e-6)


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_weights_and_reset(metric):
    one = metric()
    one.update_state(*BATCHES[0], sample_weight=np.array([0.0, 1.0]))
    alone = metric()
    alone.update_state(BATCHES[0][0][1:], BATCHES[0][1][1:])
    assert float(one.result()) == pytest.approx(float(alone.result()), rel=1e-6)
    one.reset_state()
    one.update_state(*BATCHES[1])
    alone.reset_state()
    alone.update_state(*BATCHES[1])
    assert float(one.result()) == float(alone.result())


@pytest.mark.parametrize("metric", [TokenAccuracy, Perplexity])
def test_nan_at_padding_counts_for_nothing(metric):
    def value(at):
        logits = BATCHES[0][1].copy()
        logits[0, at] = np.nan
        one = metric()
        one.update_state(BATCHES[0][0], logits)
        return float(one.result())

    plain = metric()
    plain.update_state(*BATCHES[0])
    assert value(at=2) == float(plain.result())
    if metric is Perplexity:
        assert np.isnan(value(at=1))
