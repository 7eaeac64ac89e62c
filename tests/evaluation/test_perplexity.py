"""Perplexity against NumPy loops over logits."""

import keras
import numpy as np
import pytest

from keras_attention import LabelSmoothedCrossentropy, perplexity
from keras_attention.callbacks import ValidationPerplexity
from keras_attention.evaluation.perplexity import PerplexityMeter

V, PAD = 7, 0


class TableModel(keras.Model):
    """Logits of the next token, from a table of the present one; dropout would show."""

    pad_token_id = PAD

    def __init__(self, scale=1.0, dtype=None):
        super().__init__(dtype=dtype)
        # Quarters: bfloat16 holds them without rounding.
        rows = scale * np.round(4 * np.random.default_rng(3).standard_normal((V, V))) / 4
        self.table = keras.layers.Embedding(V, V, dtype=dtype)
        self.table.build((None, None))
        self.table.embeddings.assign(rows.astype("float32"))
        self.rows = keras.ops.convert_to_numpy(self.table.embeddings).astype("float64")
        self.drop = keras.layers.Dropout(0.5, dtype=dtype)
        self.built = True

    def call(self, inputs, training=None):
        return self.drop(self.table(inputs["decoder_token_ids"]), training=training)


def batch(labels):
    labels = np.array(labels, "int32")
    shifted = np.concatenate([np.zeros((len(labels), 1), "int32"), labels[:, :-1]], axis=1)
    return {"decoder_token_ids": shifted}, labels


def by_loops(model, sentences):
    total, count = 0.0, 0
    for sentence in sentences:
        previous = 0
        for token in sentence:
            row = model.rows[previous]
            total -= row[token] - np.log(np.sum(np.exp(row)))
            count += 1
            previous = token
    return np.exp(total / count)


SENTENCES = [[4, 5, 1], [3, 1], [6, 6, 2, 5, 1], [1], [2, 4, 3, 1]]


def padded(sentences, length):
    return [sentence + [PAD] * (length - len(sentence)) for sentence in sentences]


def test_counts_tokens_not_padding_and_whatever_the_batches():
    model = TableModel()
    expected = by_loops(model, SENTENCES)
    cuts = [
        [batch(padded(SENTENCES, 5))],
        [batch(padded(SENTENCES, 9))],
        [batch(padded(SENTENCES[:2], 3)), batch(padded(SENTENCES[2:], 6))],
        [batch(padded([sentence], 5)) for sentence in SENTENCES] + [batch(padded([[]], 5))],
    ]
    for batches in cuts:
        assert perplexity(model, batches) == pytest.approx(expected, rel=1e-6)
        assert perplexity(model, iter(batches)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.backends("torch")
def test_reads_a_dataset_to_its_end():
    class Endless(keras.utils.PyDataset):
        """As Keras allows: nothing happens at the end but that `len` says so."""

        def __len__(self):
            return 2

        def __getitem__(self, index):
            return batch(padded(SENTENCES[2 * index : 2 * index + 2], 5))

    model = TableModel()
    assert perplexity(model, Endless()) == pytest.approx(by_loops(model, SENTENCES[:4]), rel=1e-6)


def test_low_precision_logits_are_measured_in_float32():
    model = TableModel(dtype="mixed_bfloat16")
    assert perplexity(model, [batch(padded(SENTENCES, 5))]) == pytest.approx(
        by_loops(model, SENTENCES), rel=1e-6
    )


@pytest.mark.backends("torch")
def test_too_large_for_a_float():
    assert perplexity(TableModel(scale=1e5), [batch(padded(SENTENCES, 5))]) == np.inf


def smoothed_by_loops(model, sentences, smoothing):
    total, count = 0.0, 0
    for sentence in sentences:
        for previous, token in zip([0, *sentence], sentence, strict=False):
            row = model.rows[previous]
            nll = np.log(np.sum(np.exp(row))) - row
            weights = np.full(V, smoothing / (V - 1))
            weights[token] = 1 - smoothing
            total, count = total + weights @ nll, count + 1
    return total / count


def test_the_smoothed_loss_is_measured_besides():
    """Batches of unlike numbers of tokens, so that a mean of their means would be another number."""
    model = TableModel()
    model.compile("sgd", LabelSmoothedCrossentropy(0.3))
    batches = [batch(padded(SENTENCES[:2], 3)), batch(padded(SENTENCES[2:], 6))]
    expected = smoothed_by_loops(model, SENTENCES, 0.3)
    meter = PerplexityMeter(model, model.loss)
    assert meter.last_loss is None
    assert meter(batches) == pytest.approx(by_loops(model, SENTENCES), rel=1e-6)
    assert meter.last_loss == pytest.approx(expected, rel=1e-6)
    callback, logs = ValidationPerplexity(batches), {"loss": 2.0}
    callback.set_model(model)
    callback.on_epoch_end(0, logs)
    assert logs == {
        "loss": 2.0,
        "val_perplexity": pytest.approx(by_loops(model, SENTENCES), rel=1e-6),
        "val_loss": pytest.approx(expected, rel=1e-6),
    }


@pytest.mark.backends("torch")
def test_another_loss_is_not_measured():
    model = TableModel()
    model.compile("sgd", "mse")
    callback, logs = ValidationPerplexity([batch(padded(SENTENCES, 5))]), {}
    callback.set_model(model)
    callback.on_epoch_end(0, logs)
    assert list(logs) == ["val_perplexity"]


@pytest.mark.backends("tensorflow", "jax")
def test_measures_again_without_compiling_again(monkeypatch):
    """As after each epoch; with the weights of that time."""
    traced = []
    call = TableModel.call
    monkeypatch.setattr(
        TableModel,
        "call",
        lambda self, x, training=None: traced.append(1) or call(self, x, training),
    )
    model = TableModel()
    batches = [batch(padded(SENTENCES, 5))]
    meter = PerplexityMeter(model)
    first = meter(batches)
    model.table.embeddings.assign(np.zeros((V, V), "float32"))
    assert meter(batches) == pytest.approx(V) != pytest.approx(first)
    assert len(traced) == 1


@pytest.mark.backends("torch")
def test_nothing_to_measure():
    with pytest.raises(ValueError, match="no target token"):
        perplexity(TableModel(), [])
    with pytest.raises(ValueError, match="no target token"):
        perplexity(TableModel(), [batch([[PAD, PAD]])])


@pytest.mark.backends("torch")
@pytest.mark.parametrize("label", [V, -2])
def test_a_label_outside_the_vocabulary_is_no_number(label):
    """As of a token store of another tokenizer, whose last tokens no decoder reads."""
    inputs, labels = batch([[4, 5, 3]])
    assert np.isfinite(perplexity(TableModel(), [(inputs, labels)]))
    labels[0, 2] = label
    assert np.isnan(perplexity(TableModel(), [(inputs, labels)]))


def test_labels_of_another_shape():
    inputs, labels = batch(padded(SENTENCES, 5))
    with pytest.raises(ValueError, match=r"labels \(5, 4\), predictions \(5, 5, 7\)"):
        perplexity(TableModel(), [(inputs, labels[:, 1:])])
