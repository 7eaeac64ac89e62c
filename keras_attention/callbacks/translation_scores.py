"""A Keras callback that scores real translations while a model trains."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.callbacks.nonfinite import has_diverged
from keras_attention.evaluation.bleu import check_lines, corpus_bleu, corpus_chrf
from keras_attention.training.moving_average import with_moving_average
from keras_attention.utils.checks import check_callable, check_has, check_integer
from keras_attention.utils.progress import activity


class TranslationScores(RunCallback):
    """Translates the validation set at regular intervals, and logs sacreBLEU's BLEU and chrF.

    At the end of an epoch, the scores are added to Keras' logs as `val_bleu` and `val_chrf`, where the
    callbacks after this one find them. Within epochs, which may last for hours, they go to `monitor`. A
    model that has diverged is not scored. If the optimizer keeps a moving average of the weights, that one
    translates.

    Args:
        translate: A function from sentences to translations by the model in training, such as a
            `Translator`.
        sources: Sentences of the validation set, or some of them.
        references: Their reference translations.
        every_epochs: Number of epochs between two scores; None for no scores at the ends of epochs.
            Defaults to 1.
        every_updates: Number of batches between two scores; None for no scores within epochs. Defaults
            to None.
        monitor: A `TrainingMonitor`. Its clock stops while sentences are translated. Needed with
            `every_updates`.
        stop: The `Stop` of the training: an epoch that a signal cuts short is not scored.

    Raises:
        ValueError: If the lists do not fit together, or an interval is not positive.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> lines = ["ein Hund bellt im Garten", "zwei Frauen lesen ein Buch"]
    >>> scores = TranslationScores(lambda sources: lines, ["...", "..."], lines, every_epochs=2)
    >>> history = model.fit(np.ones((4, 3)), np.ones((4, 1)), epochs=4, callbacks=[scores], verbose=0)
    >>> [round(bleu) for bleu in history.history["val_bleu"]]
    [100, 100]
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[str]],
        sources: Sequence[str],
        references: Sequence[str],
        every_epochs: int | None = 1,
        every_updates: int | None = None,
        monitor: Any = None,
        stop: Stop | None = None,
    ):
        super().__init__(stop)
        check_callable("translate", translate)
        for name, value in (("every_epochs", every_epochs), ("every_updates", every_updates)):
            if value is not None:
                check_integer(name, value, 1)
        if monitor is not None:
            check_has("monitor", monitor, "a TrainingMonitor", "paused")
        if every_updates is not None and monitor is None:
            raise ValueError(
                "`every_updates` needs a `monitor`, which logs the scores. Received: monitor=None"
            )
        self.translate = translate
        self.sources, self.references = check_lines(sources, references, "sources")
        self.every_epochs = every_epochs
        self.every_updates = every_updates
        self.monitor = monitor
        self._epoch = 0
        self._scored = 0  # number of batches of the run at the last score within an epoch

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed run needs to score at the same updates, once each."""
        return {"scored": self._scored}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `get_state`."""
        self._scored = state["scored"]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def before_update(self, batch: int) -> None:
        if self.every_updates is None:
            return
        # Counted here: asking the optimizer would wait for the device at every batch.
        done = self._epoch * (self.params.get("steps") or 0) + batch
        if done and done % self.every_updates == 0 and done != self._scored:
            self._scored = done
            scores = self._scores_if_any()
            if scores:
                self.monitor.record("validation", scores)

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        if self.every_epochs and (epoch + 1) % self.every_epochs == 0:
            logs.update({f"val_{name}": value for name, value in self._scores_if_any().items()})

    def _scores_if_any(self) -> dict[str, float]:
        """Return the scores; warn and return {} if the model has diverged since the last check."""
        if has_diverged(self.model):
            return {}
        try:
            return self.scores()
        except FloatingPointError as error:
            warnings.warn(f"There are no scores of translations. {error}", stacklevel=2)
            return {}

    def scores(self) -> dict[str, float]:
        """Return BLEU and chrF of the current model."""
        # On JAX, `self.model` restores the weights that `fit` keeps elsewhere.
        moving = with_moving_average(self.model)
        paused = contextlib.nullcontext() if self.monitor is None else self.monitor.paused()
        with paused, moving, activity("translating the validation set"):
            translations = list(self.translate(self.sources))
            return {
                "bleu": corpus_bleu(translations, self.references).score,
                "chrf": corpus_chrf(translations, self.references).score,
            }
