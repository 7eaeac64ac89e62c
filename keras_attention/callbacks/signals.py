"""Training that ends in order on Ctrl-C or SIGTERM."""

import signal
from typing import Any

import keras

from keras_attention.utils.checks import check_boolean


class TrainingStopped(KeyboardInterrupt):
    """A signal ended training in order; a checkpoint was written.

    Args:
        signal_name: `"SIGINT"` or `"SIGTERM"`.

    Attributes:
        signal_name: As given.
        exit_code: What a shell expects of a process that the signal ended: 130 or 143.
    """

    def __init__(self, signal_name: str):
        super().__init__(signal_name)
        self.signal_name = signal_name
        self.exit_code = 128 + int(signal.Signals[signal_name])


class StopOnSignal(keras.callbacks.Callback):
    """Ends training in order on Ctrl-C or SIGTERM, after the present batch.

    A second Ctrl-C interrupts at once, as ever.

    Args:
        at_once: Whether the signal ends the training itself. Several processes must end together: use
            `StopTogether` there, which then says `signal_name`.

    Attributes:
        signal_name: What ends the training, or None.
        received: The signal that came to this process, or None.
    """

    def __init__(self, at_once: bool = True) -> None:
        super().__init__()
        self.at_once = check_boolean("at_once", at_once)
        self.signal_name: str | None = None
        self.received: str | None = None
        self._previous: dict[int, Any] = {}
        self._trained: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        # Not `self.model` when the signal comes: on JAX that moves the state, perhaps within a step.
        self._trained = self.model
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # It came before `fit` set `stop_training` to False.
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
