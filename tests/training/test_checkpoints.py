"""Averages of checkpoints, and runs that stop and go on."""

import json
import os
import signal

import keras
import numpy as np
import pytest

from keras_attention.training import (
    Budget,
    Checkpoints,
    StopOnSignal,
    average_checkpoints,
    save_weights_atomically,
)

rng = np.random.default_rng(7)
X, Y = rng.normal(size=(12, 3)).astype("float32"), rng.normal(size=(12, 2)).astype("float32")


def model(*more):
    layers = [keras.Input((3,)), keras.layers.Dense(4), *more, keras.layers.Dense(2)]
    made = keras.Sequential(layers)
    made.compile(keras.optimizers.Adam(0.05), "mse")
    made.set_weights([np.full(w.shape, 0.1, "float32") for w in made.get_weights()])
    return made


def fit(made, epochs, callbacks, initial_epoch=0):
    made.fit(X, Y, batch_size=4, epochs=epochs, initial_epoch=initial_epoch, shuffle=False,
             callbacks=callbacks, verbose=0)  # fmt: skip


def test_the_average_is_the_mean_in_float64(tmp_path):
    made, weights, paths = model(), [], []
    for i in range(3):
        weights.append(
            [rng.normal(size=w.shape).astype("float32") * 10**i for w in made.get_weights()]
        )
        made.set_weights(weights[-1])
        paths.append(tmp_path / f"{i}.weights.h5")
        save_weights_atomically(made, paths[-1])
    average_checkpoints(made, paths)
    for index, got in enumerate(made.get_weights()):
        expected = np.mean([np.float64(w[index]) for w in weights], axis=0)
        np.testing.assert_array_equal(got, expected.astype("float32"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in paths]


def test_an_average_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no checkpoints"):
        average_checkpoints(model(), [])


def test_a_run_in_two_parts_equals_one(tmp_path):
    """Also in what the dropout draws: not the first epochs' masks again."""
    whole = model(keras.layers.Dropout(0.4, seed=3))
    fit(whole, 4, [])
    first = model(keras.layers.Dropout(0.4, seed=3))
    fit(first, 2, [Checkpoints(tmp_path)])
    second = model(keras.layers.Dropout(0.4, seed=3))
    checkpoints = Checkpoints(tmp_path)
    done = checkpoints.restore(second)
    assert done == 2
    fit(second, 4, [checkpoints], initial_epoch=done)
    for got, expected in zip(second.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert [(entry["epoch"], entry["updates"]) for entry in checkpoints.history] == [
        (epoch, 3 * epoch) for epoch in (1, 2, 3, 4)
    ]
    assert [path.name for path in checkpoints.paths] == [
        f"epoch-{epoch:05d}.weights.h5" for epoch in (1, 2, 3, 4)
    ]


def test_only_the_last_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    fit(model(), 5, [checkpoints])
    assert [path.name[6:11] for path in checkpoints.paths] == ["00004", "00005"]
    assert checkpoints.restore(model()) == 5


def test_an_interrupted_epoch_leaves_the_checkpoint_before(tmp_path):
    class Kill(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if self.model.optimizer.iterations == 4:  # The second batch of the second epoch.
                os.kill(os.getpid(), signal.SIGTERM)

    signals = StopOnSignal()
    before = signal.getsignal(signal.SIGTERM)
    made = model()
    fit(
        made,
        9,
        [signals, Checkpoints(tmp_path, 3, lambda: signals.signal_name is not None), Kill()],
    )
    assert signals.signal_name == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (progress["epochs"], progress["checkpoint"]) == (1, "epoch-00001.weights.h5")


@pytest.mark.parametrize("steps", [1, 4, 6])
def test_a_budget_of_steps_is_exact(steps):
    made = model()
    fit(made, 9, [Budget(steps=steps)])
    assert int(made.optimizer.iterations) == steps


def test_a_budget_counts_what_was_done_before():
    made = model()
    fit(made, 1, [])
    fit(made, 9, [Budget(steps=5)], initial_epoch=1)
    assert int(made.optimizer.iterations) == 5
    fit(made, 9, [Budget(minutes=1.0, seconds_before=61.0)])
    assert int(made.optimizer.iterations) == 6
