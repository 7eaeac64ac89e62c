"""The callbacks, in a `fit` whose every loss is known: the weights hardly move."""

import time

import keras
import numpy as np
import pytest

from keras_attention import SummaryWriter, TrainingMonitor, callbacks
from tests.visualization.event_files import read_values

ALL = [
    value
    for value in (getattr(callbacks, name) for name in callbacks.__all__)
    if isinstance(value, type) and issubclass(value, keras.callbacks.Callback)
]
BATCHES, ROWS = 7, 3
BATCH_LOSSES = [1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0]  # squares of the labels


class Creeping(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that tells the number of updates, and is too small to move anything."""

    def __call__(self, step):
        return 1e-12 * (keras.ops.cast(step, "float32") + 1)


def make_model(learning_rate=None, **options):
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)])
    optimizer = keras.optimizers.SGD(
        Creeping() if learning_rate is None else learning_rate, **options
    )
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def data():
    """Batch i has the label i + 1 in each of its rows."""
    return np.ones((BATCHES * ROWS, 2)), np.repeat(np.arange(BATCHES) + 1.0, ROWS)[:, None]


def fit(model, *callbacks, **options):
    x, y = data()
    options = {"epochs": 2, "shuffle": False, "verbose": 0, **options}
    return model.fit(x, y, batch_size=ROWS, callbacks=list(callbacks), **options)


def test_curves(tmp_path):
    x, y = data()
    validation = (x[:2], y[:2] + 1)
    with SummaryWriter(tmp_path) as writer:
        monitor = TrainingMonitor(writer, every=2)
        history = fit(make_model(), monitor, validation_data=validation).history
    values = read_values(tmp_path)
    # The first batch compiles: the clock, and with it the counting, starts after it.
    mean = np.mean
    expected = {
        3: mean(BATCH_LOSSES[0:3]),
        5: mean(BATCH_LOSSES[3:5]),
        6: mean(BATCH_LOSSES[5:6]),  # before the last batch of the epoch
        9: mean(BATCH_LOSSES[0:2]),
        11: mean(BATCH_LOSSES[2:4]),
        13: mean(BATCH_LOSSES[4:6]),
    }
    assert [step for step, _ in values["quality/loss"]] == list(expected)
    for (step, loss), rate, error in zip(
        values["quality/loss"], values["rate/learning_rate"], values["train/mae"], strict=True
    ):
        assert loss == pytest.approx(expected[step], rel=1e-4)
        assert rate == (step, pytest.approx(1e-12 * (step + 1), rel=1e-5))
        complete = (step - 1) % BATCHES + 1  # since the epoch began
        assert error == (step, pytest.approx(np.mean(np.arange(complete) + 1.0), rel=1e-4))
    assert history["val_loss"] == pytest.approx([4, 4], rel=1e-4)
    for tag, name in {
        "train/epoch_loss": "loss",
        "train/epoch_mae": "mae",
        "quality/validation_loss": "val_loss",
        "validation/mae": "val_mae",
    }.items():
        steps, logged = zip(*values[tag], strict=True)
        assert steps == (7, 14)
        assert logged == pytest.approx(history[name], rel=1e-6)


@pytest.mark.backends("torch")
def test_what_is_no_number_or_not_known_is_left_out(tmp_path):
    """A metric with a number for each class, words of another callback; batches that count no tokens."""
    model = make_model()
    model.compile("sgd", "mse", metrics=["mae", keras.metrics.F1Score(threshold=0.5)])
    tell = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(note="well", more=np.float32(epoch + 0.5))
    )
    with SummaryWriter(tmp_path) as writer:
        x, y = np.ones((BATCHES, 2)), np.ones((BATCHES, 1))
        callbacks = [tell, TrainingMonitor(writer, batches=[1, 2], every=2)]
        model.fit(x, y, batch_size=1, epochs=2, callbacks=callbacks, verbose=0)
    values = read_values(tmp_path)
    assert values["train/epoch_more"] == [(7, 0.5), (14, 1.5)]
    assert len(values["train/mae"]) == 6
    assert not [tag for tag in values if "f1" in tag or "note" in tag or "tokens" in tag]
    assert all(speed > 0 for _, speed in values["work/batches_per_second"])


class CountedBatches:
    """Batch i of epoch e has 100 e + 10 i source tokens and one target token."""

    def tokens_in_batch(self, epoch, index):
        return 100 * epoch + 10 * index, 1


@pytest.mark.backends("torch")
def test_speed(tmp_path, monkeypatch):
    """On a clock that advances by half a second whenever it is read."""
    now = iter(np.arange(1000) / 2)
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    with SummaryWriter(tmp_path) as writer:
        fit(make_model(), TrainingMonitor(writer, CountedBatches(), every=4))
    values = read_values(tmp_path)
    # Windows: batches 1 to 4 and 5 of the first epoch; 0 to 3 and 4 to 5 of the second.
    per_half_second = {
        5: (4, 10 + 20 + 30 + 40 + 4),
        6: (1, 50 + 1),
        11: (4, 400 + 0 + 10 + 20 + 30 + 4),
        13: (2, 200 + 40 + 50 + 2),
    }
    expected = [(step, 2 * batches) for step, (batches, _) in per_half_second.items()]
    assert values["work/batches_per_second"] == expected
    expected = [(step, 2 * tokens) for step, (_, tokens) in per_half_second.items()]
    assert values["work/tokens_per_second"] == expected


def test_steps_are_updates_when_gradients_are_accumulated(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        model = make_model(learning_rate=1e-12, gradient_accumulation_steps=2)
        fit(model, TrainingMonitor(writer, every=4), epochs=1)
    # After batches 5 and 6: two and three updates.
    assert [step for step, _ in read_values(tmp_path)["quality/loss"]] == [2, 3]


class Interrupt(keras.callbacks.Callback):
    """Ctrl-C after five batches."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            raise KeyboardInterrupt


@pytest.mark.backends("torch")
def test_interrupted_training_keeps_its_log(tmp_path):
    writer = SummaryWriter(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), TrainingMonitor(writer, every=1), Interrupt())
    assert [step for step, _ in read_values(tmp_path)["quality/loss"]] == [2, 3, 4]
    writer.close()


@pytest.mark.backends("torch")
@pytest.mark.parametrize("callback", ALL)
def test_the_device_is_left_alone_between_entries(callback):
    """A callback with one of these methods makes Keras read all metrics in every step."""
    for name in ("on_train_batch_end", "on_batch_end"):
        assert getattr(callback, name) is getattr(keras.callbacks.Callback, name)


@pytest.mark.backends("tensorflow", "jax")
def test_every_update_of_a_call_counts():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=3)
    budget, ends = callbacks.Budget(steps=10), []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: ends.append((budget.updates, budget.stop.within_epoch))
    )
    best = callbacks.BestCheckpoint("loss", "max", budget.stop)
    fit(model, budget, best, look, epochs=4)
    assert ends == [(7, False), (10, True)]
    assert int(model.optimizer.iterations) == 10
