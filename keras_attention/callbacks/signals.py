"""Ends training cleanly on Ctrl-C or SIGTERM."""

import contextlib
import signal
from typing import Any

import keras

from keras_attention.utils.checks import check_boolean


class TrainingStopped(KeyboardInterrupt):
    """A signal ended training cleanly, after a checkpoint was written.

    Args:
        signal_name: `"SIGINT"` or `"SIGTERM"`.

    Attributes:
        signal_name: The argument.
        exit_code: The exit code that shells use for this signal, 130 or 143.
    """

    def __init__(self, signal_name: str):
        super().__init__(signal_name)
        self.signal_name = signal_name
        self.exit_code = 128 + int(signal.Signals[signal_name])


class StopOnSignal(keras.callbacks.Callback):
    """Ends training cleanly on Ctrl-C or SIGTERM, after the current batch.

    Python handles signals in the main thread alone: a training in another thread leaves them as they are. A
    second Ctrl-C interrupts at once, as usual.

    Args:
        at_once: Whether this callback ends the training. Pass False for several processes, which must
            end together: `StopTogether` then ends it and sets `signal_name`. Defaults to True.

    Attributes:
        signal_name: The signal that ends the training, or None.
        received: The signal that this process received, or None.
    """

    def __init__(self, at_once: bool = True) -> None:
        super().__init__()
        self.at_once = check_boolean("at_once", at_once)
        self.signal_name: str | None = None
        self.received: str | None = None
        self._previous: dict[int, Any] = {}
        self._trained: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        # The signal handler must not use `self.model`: on JAX that moves the state, perhaps within a step.
        self._trained = self.model
        for number in (signal.SIGINT, signal.SIGTERM):
            # A handler that is not Python's own could not be put back.
            if signal.getsignal(number) is not None:
                with contextlib.suppress(ValueError):  # of any thread but the main one
                    self._previous[number] = signal.signal(number, self._stop)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # The signal may have come before `fit` set `stop_training` to False.
        if self.received is not None and self.at_once:
            self._trained.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self.received = signal.Signals(number).name
        if self.at_once:
            self.signal_name = self.received
            self._trained.stop_training = True
        signal.signal(number, self._previous[number])
