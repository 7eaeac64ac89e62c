"""Which checkpoint is the best and kept, over stops and cool-downs; when no better one ends a training."""

import json
import math
import types

import keras
import numpy as np
import pytest

from keras_attention import average_checkpoints
from keras_attention.callbacks import BestCheckpoint, Budget, Checkpoints, Stop, StopWithoutGain
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


def epochs(stop, values):
    """Which of these ends of epochs ask for the end of training."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    stop.set_model(model)
    asked = []
    for epoch, value in enumerate(values):
        model.stop_training = False
        stop.on_epoch_end(epoch, {} if value is None else {"val_perplexity": value})
        asked.append(model.stop_training)
    return asked


@pytest.mark.parametrize(
    "patience,values,expected",
    [
        (2, [5, 4, 4, 3, 3, 3.5], [False] * 5 + [True]),
        (1, [5, 4, 4.1], [False, False, True]),
        (None, [5, 6, 7, 8], [False] * 4),
        (2, [5, None, 6, None, 7], [False] * 4 + [True]),
        (2, [float("nan"), float("inf")], [False, True]),
    ],
)
def test_when_it_stops(patience, values, expected):
    stop = StopWithoutGain(patience)
    assert epochs(stop, values) == expected
    assert stop.is_over == any(expected)


def test_of_a_score_more_is_better():
    stop = StopWithoutGain(2, mode="max")
    assert epochs(stop, [3, 4, None, 3.5, 5, 5, 4]) == [False] * 6 + [True]
    assert epochs(StopWithoutGain(1, mode="max"), [-2, -1, float("inf")]) == [False, False, True]


def test_a_resumed_run_goes_on_counting():
    first, second = StopWithoutGain(3), StopWithoutGain(3)
    assert not any(epochs(first, [4, 3, 3.5, 3.2]))
    second.set_state(json.loads(json.dumps(first.get_state())))
    assert epochs(second, [3.1]) == [True]


def test_more_patience_goes_on_with_what_had_ended():
    first, same, more = StopWithoutGain(2), StopWithoutGain(2), StopWithoutGain(4)
    assert epochs(first, [4, 4, 4])[-1]
    for stop in (same, more):
        stop.set_state(json.loads(json.dumps(first.get_state())))
    assert same.is_over and not more.is_over
    assert epochs(more, [4, 4]) == [False, True]


def test_where_training_ended_within_an_epoch_is_measured_but_not_counted():
    """In a training in one go, nothing is measured there: neither patience nor the best value know of it."""
    stop = StopWithoutGain(2)
    stop.set_params({"steps": 7})
    for batch, values in ((6, [4, 3]), (4, [2.5, 5, 6]), (6, [2.8, 2.9, 2.9])):
        stop.on_train_batch_begin(batch)
        assert epochs(stop, values) == [False] * (len(values) - 1) + [values[-1] == 2.9]


def test_a_budget_without_a_cooldown_is_refused():
    with pytest.raises(ValueError, match="`budget` must have a `cooldown`"):
        StopWithoutGain(1, budget=Budget(steps=9))


def test_an_epoch_that_was_cut_short_does_not_count():
    told = Stop(signal_name="SIGINT")
    stop = StopWithoutGain(1, stop=told)
    stop.set_params({"steps": 7})
    for batch in range(6):
        stop.on_train_batch_begin(batch)
    assert epochs(stop, [3, 4, 5]) == [False] * 3
    assert told.within_epoch
    stop.on_train_batch_begin(6)  # the last batch of an epoch
    assert epochs(stop, [3, 4]) == [False, True]
