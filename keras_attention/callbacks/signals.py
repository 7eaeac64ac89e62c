"""Training that ends in order on Ctrl-C or SIGTERM."""

import signal
from typing import Any

import keras


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

    A second Ctrl-C interrupts at once, as ever. `signal_name` says what ended the training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal_name: str | None = None
        self._previous: dict[int, Any] = {}
        self._trained: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        # Not `self.model` when the signal comes: on JAX that moves the state, perhaps within a step.
        self._trained = self.model
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._stop)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.signal_name is not None:  # It came before `fit` set `stop_training` to False.
            self._trained.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: Any) -> None:
        self.signal_name = signal.Signals(number).name
        self._trained.stop_training = True
        signal.signal(number, self._previous[number])
