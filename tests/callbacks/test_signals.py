"""Signals that end a training, where Python lets a program handle them."""

import os
import signal
import threading

import keras
import numpy as np
import pytest

from keras_attention.callbacks import StopOnSignal, TrainingStopped
from keras_attention.callbacks.signals import stopping_at_once

pytestmark = pytest.mark.backends("torch")


def fit(*callbacks):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.ones((6, 3)), np.ones((6, 1))
    return model.fit(*data, batch_size=2, epochs=2, verbose=0, callbacks=[*callbacks]).history


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


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT"])
def test_what_would_end_the_process_is_raised(name):
    """And what a program does with a signal stays: `nohup` ignores SIGHUP."""
    number, seen = getattr(signal, name), []
    original = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(TrainingStopped) as stopped, stopping_at_once():
            os.kill(os.getpid(), number)
        assert stopped.value.exit_code == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
        for kept in (signal.SIG_IGN, lambda *_: seen.append(name)):
            signal.signal(number, kept)
            with stopping_at_once():
                os.kill(os.getpid(), number)
        assert seen == [name]
    finally:
        signal.signal(number, original)


def test_a_handler_that_is_not_pythons_stays(monkeypatch):
    """`signal.signal` could not put it back."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    assert len(fit(StopOnSignal())["loss"]) == 2
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.parametrize(
    "name, before, batches",
    [
        *[(name, lambda *_: pytest.fail("not at once"), 2) for name in ("SIGHUP", "SIGQUIT")],
        ("SIGHUP", signal.SIG_IGN, 6),  # as under `nohup`
    ],
)
def test_a_closed_terminal_ends_training_after_the_batch(name, before, batches):
    """A terminal sends SIGHUP twice. What would handle the signal comes back."""
    number, seen = getattr(signal, name), []

    class Close(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)
            if len(seen) == 2:
                for _ in range(2 if name == "SIGHUP" else 1):
                    os.kill(os.getpid(), number)

    stop, original = StopOnSignal(), signal.signal(number, before)
    try:
        fit(stop, Close())
        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, original)
    assert len(seen) == batches and stop.stop.signal_name == (name if batches < 6 else None)
