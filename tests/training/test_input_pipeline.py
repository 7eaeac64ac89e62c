"""Batches on their way to `fit`: they are not changed, and TensorFlow starts no tuning thread."""

import itertools

import keras
import numpy as np
import pytest

from keras_attention import LabelSmoothedCrossentropy, Transformer, as_tf_dataset
from keras_attention.training.input_pipeline import endless_batches


class Numbered(keras.utils.PyDataset):
    """Batches whose labels say their number; counts the ends of epochs."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.ended = 0

    @property
    def signature(self):
        ids = keras.KerasTensor((None, None), "int32")
        return {"encoder_token_ids": ids, "decoder_token_ids": ids}, ids

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        ids = np.full((2, 3 + index % 2), 3 + index, "int32")
        return {"encoder_token_ids": ids, "decoder_token_ids": ids}, ids

    def on_epoch_end(self):
        self.ended += 1


class Seen(keras.metrics.Metric):
    """Keeps the number of every batch, in base 10."""

    def __init__(self):
        super().__init__(name="seen")
        self.digits = self.add_weight(shape=(), dtype="int32", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        number = keras.ops.cast(keras.ops.reshape(y_true, (-1,))[0], "int32") - 3
        self.digits.assign(10 * self.digits + number)

    def result(self):
        return self.digits + 0


def compiled_model():
    model = Transformer(
        vocabulary_size=11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2, seed=1
    )
    model.compile("sgd", LabelSmoothedCrossentropy(), metrics=[Seen()])
    return model


def any_model():
    """Of Keras' own parts, traced in a fraction of the time."""
    source, target = (
        keras.Input((None,), dtype="int32", name=name)
        for name in ("encoder_token_ids", "decoder_token_ids")
    )
    logits = keras.layers.Dense(11)(keras.layers.Embedding(11, 4)(target))
    model = keras.Model({"encoder_token_ids": source, "decoder_token_ids": target}, logits)
    model.compile("sgd", LabelSmoothedCrossentropy(), metrics=[Seen()])
    return model


def test_every_batch_comes_once_and_in_order():
    batches, validation = Numbered(6), Numbered(4)
    history = any_model().fit(
        as_tf_dataset(batches),
        validation_data=as_tf_dataset(validation),
        epochs=2,
        shuffle=False,
        verbose=0,
    )
    assert [int(seen) for seen in history.history["seen"]] == [12345, 12345]
    assert [int(seen) for seen in history.history["val_seen"]] == [123, 123]
    # Keras calls it before the first epoch, too.
    assert batches.ended == 2 + (keras.backend.backend() != "tensorflow")


def test_endless_batches_begin_anywhere():
    class Placed(Numbered):
        def batch(self, epoch, index):
            return self[3 * epoch + index]

    read = itertools.islice(endless_batches(Placed(3), 1, 2), 5)
    assert [int(labels[0, 0]) - 3 for _, labels in read] == [5, 6, 7, 8, 9]


def test_fit_shuffles_batches_as_keras_does_by_its_seed():
    """The oracle: the order in which a model of Keras' own parts sees them."""

    def orders(model):
        keras.utils.set_random_seed(7)
        history = model.fit(Numbered(6), epochs=3, verbose=0)
        return [f"{int(seen):06d}" for seen in history.history["seen"]]

    found = orders(compiled_model())
    assert all(sorted(order) == list("012345") for order in found)
    assert set(found) != {"012345"} and found == orders(any_model())


def test_evaluate_and_predict_read_them_too():
    model = any_model()
    batches = as_tf_dataset(Numbered(5))
    assert int(model.evaluate(batches, verbose=0, return_dict=True)["seen"]) == 1234
    assert model.predict(as_tf_dataset(Numbered(1)), verbose=0).shape == (2, 3, 11)


def test_labels_beside_batches_are_refused_as_by_keras():
    with pytest.raises(ValueError, match="PyDataset"):
        compiled_model().fit(Numbered(2), np.ones((2, 3)), verbose=0)


def test_only_a_pydataset_with_a_signature_is_accepted():
    class Unsigned(Numbered):
        signature = None

    for data in (np.ones((2, 3)), Unsigned(6), None):
        with pytest.raises(ValueError, match=f"Received: {type(data).__name__}"):
            as_tf_dataset(data)


@pytest.mark.backends("tensorflow")
def test_tensorflow_does_not_tune():
    dataset = as_tf_dataset(Numbered(2))
    assert dataset.options().autotune.enabled is False
    assert int(dataset.cardinality()) == 2


@pytest.mark.backends("jax", "torch")
def test_other_backends_read_the_batches_themselves():
    batches = Numbered(2)
    assert as_tf_dataset(batches) is batches


def test_fit_hands_its_arguments_to_keras_as_they_are(monkeypatch):
    given = {}
    monkeypatch.setattr(
        keras.Model, "fit", lambda self, *args, **kwargs: given.update(kwargs, x=args[0], y=args[1])
    )
    batches, callbacks = Numbered(2), [keras.callbacks.History()]
    compiled_model().fit(batches, validation_data=batches, callbacks=callbacks, shuffle=True)
    assert given["x"] is batches and given["y"] is None and given["shuffle"] is True
    assert given["callbacks"] is callbacks and given["validation_data"] is batches
