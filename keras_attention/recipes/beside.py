"""How long a run takes beside its updates: validation, and what follows the training."""

from __future__ import annotations

import dataclasses
import math

from keras_attention.callbacks.validation import TranslationScores, ValidationPerplexity
from keras_attention.utils.forecast import Forecast


@dataclasses.dataclass(frozen=True)
class WorkBeside:
    """The seconds of the work beside the updates that is still to come, by how long it took last."""

    perplexity: ValidationPerplexity  # what validates after each epoch
    scores: TranslationScores
    batches: int  # updates of an epoch
    sentences: int  # those that are translated at the end
    systems: int  # the weights that translate them, such as the last checkpoint and the average

    def __call__(self, forecast: Forecast) -> float:
        """Return the seconds that follow the updates of a forecast."""
        updates = 0.0 if forecast.expected is None else forecast.expected - forecast.updates
        epochs = math.ceil(max(0.0, updates) / self.batches)
        validating = epochs * (self.perplexity.seconds or 0.0)
        scoring = epochs // self.scores.every_epochs * (self.scores.seconds or 0.0)
        return validating + scoring + (self.ending or 0.0)

    @property
    def ending(self) -> float | None:
        """Seconds of what follows the training; None if nothing like it was measured."""
        if self.perplexity.seconds is None or self.scores.seconds is None:
            return None
        translating = self.scores.seconds / len(self.scores.sources) * self.sentences
        return self.systems * (self.perplexity.seconds + translating)
