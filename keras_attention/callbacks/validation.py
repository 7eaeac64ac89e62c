"""What is measured on the validation set after each epoch: perplexity, scores of translations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.callbacks.nonfinite import warning_if_diverged
from keras_attention.evaluation.bleu import check_lines, corpus_bleu, corpus_chrf
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.training.checkpoint_store import first_nonfinite
from keras_attention.training.checkpoints import with_moving_average
from keras_attention.training.distribution import computing_alone
from keras_attention.training.losses import LabelSmoothedCrossentropy
from keras_attention.utils.arguments import Count, Has, checked
from keras_attention.utils.progress import activity


class ValidationPerplexity(RunCallback):
    """Adds the perplexity of the validation set to the logs of each epoch, as `val_perplexity`.

    If the model is compiled with a `LabelSmoothedCrossentropy`, it adds that loss as `val_loss`, which is
    comparable to the training loss apart from dropout. If the optimizer keeps a moving average of the
    weights, that is measured.

    Args:
        batches: Batches of the validation set.
        stop: The `Stop` of the training: an epoch that a signal cuts short gets no perplexity.

    Attributes:
        seconds: How long it took last; None before it was measured.
    """

    @checked
    def __init__(self, batches: Iterable[Any], stop: Stop | None = None):
        super().__init__(stop)
        self.batches = batches
        self.seconds: float | None = None
        self._meter: PerplexityMeter | None = None

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        logs.update(self.measure())

    def measure(self) -> dict[str, float]:
        """Return the numbers of the current model."""
        began = time.monotonic()
        alone, moving = computing_alone(self.model), with_moving_average(self.model)
        with alone, moving, activity("perplexity of the validation set"):
            if self._meter is None or self._meter.model is not self.model:
                loss = getattr(self.model, "loss", None)
                smoothed = isinstance(loss, LabelSmoothedCrossentropy)
                self._meter = PerplexityMeter(self.model, loss if smoothed else None)
            found = {"val_perplexity": self._meter(self.batches)}
            if self._meter.last_loss is not None:
                found["val_loss"] = self._meter.last_loss
        self.seconds = time.monotonic() - began
        return found


class TranslationScores(RunCallback):
    """Translates the validation set at regular intervals, and logs sacreBLEU's BLEU and chrF.

    At the end of an epoch, the scores are added to Keras' logs as `val_bleu` and `val_chrf`, where the
    callbacks after this one find them. A model that has diverged is not scored. If the optimizer keeps a
    moving average of the weights, that one translates.

    Args:
        translate: A function from sentences to translations by the model in training, such as a
            `Translator`.
        sources: Sentences of the validation set, or some of them.
        references: Their reference translations.
        every_epochs: Number of epochs between two scores. Defaults to 1.
        monitor: A `TrainingMonitor`. Its clock stops while sentences are translated.
        stop: The `Stop` of the training: an epoch that a signal cuts short is not scored.
        language: Language code of the references, which chooses BLEU's tokenizer; see `corpus_bleu`. Defaults
            to None, an unknown one.

    Attributes:
        seconds: How long translating and scoring took last; None before.

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

    @checked
    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[str]],
        sources: Sequence[str],
        references: Sequence[str],
        every_epochs: Count = 1,
        monitor: Annotated[Any, Has("a TrainingMonitor", "paused")] | None = None,
        stop: Stop | None = None,
        language: str | None = None,
    ):
        super().__init__(stop)
        self.translate = translate
        self.every_epochs = every_epochs
        self.monitor = monitor
        self.language = language
        self.seconds: float | None = None
        self.sources, self.references = check_lines(sources, references, "sources")

    def after_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        if (epoch + 1) % self.every_epochs or first_nonfinite(self.model):
            return
        with warning_if_diverged("There are no scores of translations."):
            logs.update({f"val_{name}": value for name, value in self.scores().items()})

    def scores(self) -> dict[str, float]:
        """Return BLEU and chrF of the current model."""
        began = time.monotonic()
        # On JAX, `self.model` restores the weights that `fit` keeps elsewhere.
        moving = with_moving_average(self.model)
        paused = contextlib.nullcontext() if self.monitor is None else self.monitor.paused()
        with paused, moving, activity("translating the validation set"):
            translations = list(self.translate(self.sources))
            found = {
                "bleu": corpus_bleu(translations, self.references, language=self.language).score,
                "chrf": corpus_chrf(translations, self.references).score,
            }
        self.seconds = time.monotonic() - began
        return found
