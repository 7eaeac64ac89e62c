"""Training that meets an infinite or NaN number: what the error names, and which weights are left."""

import keras
import numpy as np
import pytest

from keras_attention import Adam
from keras_attention.callbacks import NonFiniteTraining, StopOnNonFinite

BATCHES, ROWS = 7, 3


class Store:
    """Pair i has i + 1 source tokens and two target tokens."""

    source_lengths = np.arange(30) + 1
    target_lengths = np.full(30, 2)

    def source(self, index):
        return np.array([index, 1])

    def target(self, index):
        return np.array([100 + index, 1])


class Batches:
    """Batch i of epoch e has the pairs 3 i + e, and the two after it; the last row may be padding."""

    store = Store()

    def __len__(self):
        return BATCHES

    def pairs(self, epoch, index):
        pairs = 3 * index + epoch + np.arange(3)
        return np.where(pairs > 22, -1, pairs)


class Tokenizer:
    def decode(self, ids):
        return f"text {ids[0]}"


def make_model(optimizer):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(optimizer, "mse")
    return model


def fit(model, *callbacks, bad_batch=None, bad=np.nan, epochs=1):
    x, y = np.ones((BATCHES * ROWS, 2)), np.ones((BATCHES * ROWS, 1))
    if bad_batch is not None:
        y[bad_batch * ROWS + 1] = bad
    options = {"batch_size": ROWS, "epochs": epochs, "shuffle": False, "verbose": 0}
    model.fit(x, y, callbacks=list(callbacks), **options)


def test_names_update_batch_and_text():
    model = make_model(Adam(0.01))
    fit(model, StopOnNonFinite(Batches(), Tokenizer()))
    watch = StopOnNonFinite(Batches(), Tokenizer(), every=2, shown=2)
    with pytest.raises(NonFiniteTraining) as caught:
        fit(model, watch, bad_batch=4, epochs=5)
    message = str(caught.value)
    assert caught.value is watch.error
    # Seven updates before, then four good ones.
    assert "in update 12: epoch 2, batch 5 of 7" in message
    assert "has 3 pairs" in message and "13, 14, 15" in message
    shown = [line.strip() for line in message.splitlines()[-4:]]
    assert shown == [
        "15  source: text 15",
        "15  target: text 115",
        "14  source: text 14",
        "14  target: text 114",
    ]
    kernel = keras.ops.convert_to_numpy(model.layers[0].kernel)
    assert np.isfinite(kernel).all()


def test_stops_soon_and_keeps_the_weights_of_before():
    good, model = make_model(Adam(0.01)), make_model(Adam(0.01))
    model.set_weights(good.get_weights())
    for _ in range(3):
        good.train_on_batch(np.ones((ROWS, 2)), np.ones((ROWS, 1)))
    begun = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: begun.append(batch)
    )
    watch = StopOnNonFinite(Batches(), every=1)
    with pytest.raises(NonFiniteTraining, match="batch 4 of 7"):
        fit(model, count, watch, bad_batch=3, bad=np.inf)
    assert len(begun) == 5  # seen when the fifth begins, the last one
    np.testing.assert_allclose(model.get_weights()[0], good.get_weights()[0], rtol=1e-6)


@pytest.mark.backends("torch")
def test_padding_rows_are_no_pairs():
    model = make_model(Adam(0.01))
    for _ in range(3):
        fit(model, StopOnNonFinite(Batches()))
    with pytest.raises(
        NonFiniteTraining, match="epoch 4, batch 7 of 7.*\n.*has 2 pairs.*: 21, 22$"
    ):
        fit(model, StopOnNonFinite(Batches()), bad_batch=6)


def test_all_batches_of_an_update_are_named():
    """The third update is of the last batch of an epoch and the first two of the next."""
    model = make_model(Adam(0.01, gradient_accumulation_steps=3))
    fit(model, StopOnNonFinite(Batches(), every=1))
    named = "update 3: epoch 1, batch 7 of 7 and the next 2.*\n.*has 9 pairs.*: 1, 2, 3, 4, 5, 6, 18, 19, 20$"
    with pytest.raises(NonFiniteTraining, match=named):
        fit(model, StopOnNonFinite(Batches(), every=9), bad_batch=1)


def test_of_a_loss_before_its_update_the_optimizer_knows_nothing_yet():
    model = make_model(Adam(0.01, gradient_accumulation_steps=3))
    with pytest.raises(NonFiniteTraining, match="since one of the updates 3 to 3.$"):
        fit(model, StopOnNonFinite(Batches(), every=1), bad_batch=6)


@pytest.mark.backends("torch")
def test_an_optimizer_that_does_not_know():
    with pytest.raises(NonFiniteTraining, match="one of the updates 3 to 4. The optimizer SGD"):
        fit(make_model("sgd"), StopOnNonFinite(Batches(), every=2), bad_batch=3)


@pytest.mark.parametrize("optimizer", [Adam(0.01), "sgd"])
def test_weights_that_are_not_finite_after_good_gradients(optimizer):
    class Spoil(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.layers[0].kernel.assign(np.full((2, 1), np.inf))

    message = "By update 7, the values of '.*kernel' are no longer finite"
    with pytest.raises(NonFiniteTraining, match=message):
        fit(make_model(optimizer), Spoil(), StopOnNonFinite(Batches()), epochs=2)
