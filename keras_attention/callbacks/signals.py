"""Ends training cleanly on Ctrl-C and other signals, in all processes that train one model."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.training.agreement import largest_of_all
from keras_attention.utils.arguments import checked

# Ctrl-C, a cluster's warning, a terminal that was closed, Ctrl-\; Windows has the first two.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
SIGNALS = [number for number in signal.Signals if number.name in NAMES]


class TrainingStopped(KeyboardInterrupt):
    """A signal ended training cleanly, after a checkpoint was written.

    Args:
        signal_name: `"SIGINT"`, `"SIGTERM"`, `"SIGHUP"` or `"SIGQUIT"`.

    Attributes:
        signal_name: The argument.
        exit_code: The exit code that shells use for this signal, 130 of `"SIGINT"`.
    """

    def __init__(self, signal_name: str):
        super().__init__(signal_name)
        self.signal_name = signal_name
        self.exit_code = 128 + int(signal.Signals[signal_name])


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """Let signals that would end the process raise `TrainingStopped` within this context, as Ctrl-C does."""

    def stop(number: int, frame: Any) -> None:
        raise TrainingStopped(signal.Signals(number).name)

    with contextlib.ExitStack() as changed:
        for number in SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                with contextlib.suppress(ValueError):  # of any thread but the main one
                    changed.callback(signal.signal, number, signal.signal(number, stop))
        yield


class StopOnSignal(RunCallback):
    """Ends training cleanly on Ctrl-C, SIGTERM, SIGHUP or SIGQUIT, after the current batch.

    Python handles signals in the main thread alone: a training in another thread leaves them as they are. A
    second Ctrl-C interrupts at once, as usual. `nohup` keeps a training running when its terminal is closed.

    Args:
        stop: The `Stop` of the training, which tells the other callbacks the signal's name.
        at_once: Whether this callback ends the training. Pass False for several processes, which must
            end together: `StopTogether` then ends it. Defaults to True.

    Attributes:
        received: The signal that this process received, or None.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> data = np.ones((4, 3)), np.ones((4, 1))
    >>> stop = Stop()
    >>> history = model.fit(*data, callbacks=[StopOnSignal(stop)], verbose=0)
    >>> stop.signal_name is None
    True
    """

    @checked
    def __init__(self, stop: Stop | None = None, at_once: bool = True) -> None:
        super().__init__(stop)
        self.at_once = at_once
        self.received: str | None = None
        self._previous: dict[int, Any] = {}
        self._trained: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        # The signal handler must not use `self.model`: on JAX that moves the state, perhaps within a step.
        self._trained = self.model
        for number in SIGNALS:
            # A handler that is not Python's own could not be put back; `nohup` has SIGHUP ignored.
            kept = signal.SIG_IGN if number.name == "SIGHUP" else None
            if signal.getsignal(number) not in (None, kept):
                with contextlib.suppress(ValueError):  # of any thread but the main one
                    self._previous[number] = signal.signal(number, self._stop)

    def before_update(self, batch: int) -> None:
        # The signal may have come before `fit` set `stop_training` to False.
        if self.received is not None and self.at_once:
            self._trained.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self.received = signal.Signals(number).name
        if self.at_once:
            self.stop.signal_name = self.received
            self._trained.stop_training = True
        # A closed terminal sends SIGHUP twice, by the shell and by the system.
        if self.received != "SIGHUP":
            signal.signal(number, self._previous[number])


class StopTogether(RunCallback):
    """Stops all processes when one of them stops: a process that continued would wait for ever.

    The processes ask each other before each update and at the end of each epoch. Put this callback last,
    so that it sees what the other callbacks decide. `signals` are this process's, with `at_once=False`.
    """

    def __init__(self, signals: StopOnSignal):
        super().__init__(signals.stop)
        self.signals = signals

    def before_update(self, batch: int) -> None:
        self._agree()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._agree()

    def _agree(self) -> None:
        name = self.signals.received
        number = 0 if name is None else int(signal.Signals[name])
        stop, number = map(int, largest_of_all([float(self.model.stop_training), float(number)]))
        if number:
            self.stop.signal_name = signal.Signals(number).name
        self.model.stop_training = bool(stop or number)
