"""Training that ends when a number no longer falls, over any number of starts."""

import json

import keras
import pytest

from keras_attention.callbacks import Stop, StopWithoutGain

pytestmark = pytest.mark.backends("tensorflow")


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
