"""Which checkpoint is the best, over stops and cool-downs, and that it is kept."""

import json
import math
import types

import keras
import numpy as np
import pytest

from keras_attention import average_checkpoints
from keras_attention.callbacks import BestCheckpoint, Checkpoints, Stop
from keras_attention.training import select_checkpoints

pytestmark = pytest.mark.backends("torch")


def model_of(updates):
    return types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=updates))


def told(best, values, first=1):
    """End an epoch of one update with each of these values; return the best after each."""
    found = []
    for updates, value in enumerate(values, start=first):
        best.set_model(model_of(updates))
        best.on_epoch_begin(updates - 1)
        best.after_epoch(updates - 1, {} if value is None else {"val_x": value})
        found.append(best.best)
    return found


@pytest.mark.parametrize("mode", ["min", "max"])
def test_it_is_the_first_of_the_best(mode):
    rng = np.random.default_rng(5)
    values = [math.nan, None, *rng.integers(-4, 5, 40).astype(float)]
    found = told(BestCheckpoint("val_x", mode), values)
    choose = min if mode == "min" else max
    for end in range(2, len(values)):
        best = choose(values[2 : end + 1])
        assert found[end] == (best, values.index(best) + 1)
    assert found[:2] == [None, None]


def test_where_training_ended_within_an_epoch_counts_only_if_it_ends_there():
    best = BestCheckpoint("val_x", "max", Stop(within_epoch=False))
    told(best, [3.0, 5.0])
    best.stop.within_epoch = True
    assert told(best, [7.0], first=3) == [(7.0, 3)] and best.milestones == {2, 3}
    other = BestCheckpoint("val_x", "max")
    other.set_state(json.loads(json.dumps(best.get_state())))
    assert other.best == (7.0, 3) and other.get_state()["best"] == {"value": 7.0, "updates": 3}
    assert told(other, [6.0], first=4) == [(6.0, 4)] and other.milestones == {4}
    assert told(best, [4.0], first=3) == [(5.0, 2)]


def test_the_best_from_before_a_cooldown_stays():
    budget = types.SimpleNamespace(finish=None, cools_from=None)
    best = BestCheckpoint("val_x", "min", budget=budget)
    told(best, [3.0, 2.0, 4.0])
    budget.cools_from = 3
    assert told(best, [2.5, 1.0, 0.5], first=4)[-1] == (0.5, 6)
    assert best.milestones == {2, 6}


def test_the_weights_before_the_first_update_may_be_the_best():
    best = BestCheckpoint("val_x", "min")
    best.begin(math.nan)
    assert best.best is None and best.milestones == set()
    best.begin(3.0)
    assert best.best == (3.0, 0) and best.milestones == {0}
    assert told(best, [4.0, 3.0, 2.5]) == [(3.0, 0), (3.0, 0), (2.5, 3)]
    assert best.milestones == {3}


def numbers_of(paths):
    return [int(path.name[-8:]) for path in paths]


def trained(best, checkpoints, values):
    """The model after an epoch of one update with each of these values, and what was kept after each."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    before = np.array(keras.ops.convert_to_numpy(model.weights[0]))
    kept = []

    def tell(epoch, logs):
        logs["val_x"] = values[epoch]

    def look(epoch, logs):
        kept.append(numbers_of(checkpoints.paths))

    told, looks = (keras.callbacks.LambdaCallback(on_epoch_end=f) for f in (tell, look))
    data = np.ones((4, 3)), np.ones((4, 1))
    callbacks = [told, best, checkpoints, looks]
    model.fit(*data, epochs=len(values), callbacks=callbacks, verbose=0)
    return model, before, kept


@pytest.mark.parametrize("begins_with, first", [(0.5, 1), (2.0, 0)])
def test_their_checkpoint_is_kept_and_never_averaged(tmp_path, begins_with, first):
    best = BestCheckpoint("val_x", "max")
    best.begin(begins_with)
    checkpoints = Checkpoints(tmp_path, 2, every_updates=3, stateful=[best])
    model, before, kept = trained(best, checkpoints, [1.0, 0.5, 0.25, 0.75])
    assert kept[-1] == [first, 3, 4]
    for updates in (None, 1):
        chosen = select_checkpoints(tmp_path, 9, updates=updates)
        assert numbers_of(chosen) == [n for n in kept[-1] if n]
    average_checkpoints(model, checkpoints.paths[:1])
    is_same = np.array_equal(keras.ops.convert_to_numpy(model.weights[0]), before)
    assert is_same == (first == 0)


def test_its_checkpoint_is_never_lost_to_rotation(tmp_path):
    best = BestCheckpoint("val_x", "max")
    checkpoints = Checkpoints(tmp_path, 1, stateful=[best])
    *_, kept = trained(best, checkpoints, [4.0, 6.0, 5.0, 7.0, 6.5, 7.0, 1.0])
    assert kept == [[1], [2], [2, 3], [4], [4, 5], [4, 6], [4, 7]]
