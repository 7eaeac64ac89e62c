"""Signals that end a training, where Python lets a program handle them."""

import signal
import threading

import keras
import numpy as np
import pytest

from keras_attention.callbacks import StopOnSignal

pytestmark = pytest.mark.backends("tensorflow")


def fit(stop):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.ones((6, 3)), np.ones((6, 1))
    return model.fit(*data, batch_size=2, epochs=2, verbose=0, callbacks=[stop]).history


def test_a_training_in_a_thread_leaves_signals_alone():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    histories, during = [], []

    class Look(StopOnSignal):
        def on_train_batch_begin(self, batch, logs=None):
            super().on_train_batch_begin(batch, logs)
            during.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])

    thread = threading.Thread(target=lambda: histories.append(fit(Look())))
    thread.start()
    thread.join()
    assert len(histories[0]["loss"]) == 2
    assert during == [before] * 6


def test_a_handler_that_is_not_pythons_stays(monkeypatch):
    """`signal.signal` could not put it back."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    assert len(fit(StopOnSignal())["loss"]) == 2
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is handler
