"""Makes the processes that train one model stop at the same update."""

from __future__ import annotations

import signal
from typing import Any

from keras_attention.callbacks.base import RunCallback
from keras_attention.callbacks.signals import StopOnSignal
from keras_attention.training.agreement import largest_of_all


class StopTogether(RunCallback):
    """Stops all processes when one of them stops: a process that continued would wait for ever.

    The processes ask each other before each update and at the end of each epoch. Put this callback last,
    so that it sees what the other callbacks decide.

    Args:
        signals: The `StopOnSignal(at_once=False)` of this process. A signal to one process stops all.
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
