"""Batches on their way to `fit`: nothing of them changes, and TensorFlow starts no thread that tunes."""

import keras
import numpy as np
import pytest

from keras_attention import LabelSmoothedCrossentropy, Transformer
from keras_attention.models.input_pipeline import steady_batches


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


def test_every_batch_comes_once_and_in_order():
    batches, validation = Numbered(6), Numbered(4)
    history = compiled_model().fit(
        batches, validation_data=validation, epochs=2, shuffle=False, verbose=0
    )
    assert [int(seen) for seen in history.history["seen"]] == [12345, 12345]
    assert [int(seen) for seen in history.history["val_seen"]] == [123, 123]
    # Keras calls it before the first epoch, too.
    assert batches.ended == 2 + (keras.backend.backend() != "tensorflow")


def test_shuffled_is_every_batch_in_another_order():
    history = compiled_model().fit(Numbered(6), epochs=3, verbose=0)
    orders = [f"{int(seen):06d}" for seen in history.history["seen"]]
    assert all(sorted(order) == list("012345") for order in orders)
    assert set(orders) != {"012345"}


def test_evaluate_and_predict_read_them_too():
    model = compiled_model()
    assert int(model.evaluate(Numbered(5), verbose=0, return_dict=True)["seen"]) == 1234
    assert model.predict(Numbered(1), verbose=0).shape == (2, 3, 11)


def test_labels_beside_batches_are_refused_as_by_keras():
    with pytest.raises(ValueError, match="PyDataset"):
        compiled_model().fit(Numbered(2), np.ones((2, 3)), verbose=0)


def test_what_is_no_pydataset_stays_as_it_is():
    arrays = np.ones((2, 3))
    assert steady_batches(arrays) is arrays


@pytest.mark.tensorflow_only
def test_tensorflow_does_not_tune():
    dataset = steady_batches(Numbered(2))
    assert dataset.options().autotune.enabled is False
    assert int(dataset.cardinality()) == 2


def test_batches_without_a_signature_are_read_by_keras():
    class Unsigned(Numbered):
        signature = None

    batches = Unsigned(6)
    assert steady_batches(batches) is batches
    history = compiled_model().fit(batches, shuffle=False, verbose=0)
    assert [int(seen) for seen in history.history["seen"]] == [12345]
