"""Stops training at the first infinite or NaN gradient or loss, and says where it came from."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import keras
import numpy as np

from keras_attention.callbacks.base import RunCallback, updates_of
from keras_attention.training.checkpoint_store import first_nonfinite
from keras_attention.utils.arguments import Count, Has, checked
from keras_attention.utils.sides import decode_side


class NonFiniteTraining(RuntimeError):
    """A loss or a gradient was infinite or NaN; the message says where."""


class StopOnNonFinite(RunCallback):
    """Stops training after an update whose gradient or loss was not finite, and shows its text.

    `keras_attention.Adam` remembers the first update with such a gradient and changes no weights from then
    on, so training leaves the last good weights. The callback asks it every few batches and at the end of
    each epoch, where it also checks the weights. With another optimizer, the callback checks the loss and
    the weights, and cannot name the exact update.

    Args:
        batches: `TokenBatches` of the training part, in the order of `fit`.
        tokenizer: Their tokenizer, to show the text of the batch. Without it, only the numbers of the
            pairs are shown.
        every: Number of batches between two checks. Each check waits for the device. Defaults to 100.
        shown: Number of pairs of the batch to show in full, longest first. Defaults to 5.

    Attributes:
        error: The `NonFiniteTraining` that ended training, or None. It is raised when training ends, and
            keeps Keras from calling the callbacks after this one: put this one last.

    Raises:
        ValueError: If `every` or `shown` is not positive.
    """

    @checked
    def __init__(
        self,
        batches: Annotated[Any, Has("TokenBatches", "pairs")],
        tokenizer: Annotated[Any, Has("a Tokenizer", "decode")] | None = None,
        every: Count = 100,
        shown: Count = 5,
    ):
        super().__init__()
        self.batches = batches
        self.tokenizer = tokenizer
        self.every = every
        self.shown = shown
        self.error: NonFiniteTraining | None = None
        self._good_updates = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self.error = None
        self._good_updates = updates_of(self.model)

    def before_update(self, batch: int) -> None:
        if batch % self.every < self._done - batch:
            self._look()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._look()
        found = None if self.error is not None else first_nonfinite(self.model)
        if found is not None:
            self._stop(
                f"By update {updates_of(self.model):,}, {found} are no longer finite. A lower learning "
                "rate, more warm-up steps or float32 may help."
            )

    def on_train_end(self, logs: Any = None) -> None:
        if self.error is not None:
            raise self.error

    def _look(self) -> None:
        model = self.model
        if self.error is not None:
            return
        first = int(getattr(model.optimizer, "first_nonfinite", 0))
        if first:
            self._stop(self._message(first))
        elif not all(map(math.isfinite, _losses(model))):
            begun = self._good_updates + 1
            knows_not = (
                f" The optimizer {type(model.optimizer).__name__} does not know which; "
                "keras_attention's Adam would, and would keep the last good weights."
            )
            self._stop(
                f"The loss is no longer finite since one of the updates {begun:,} to "
                f"{max(begun, updates_of(model)):,}."
                + ("" if hasattr(model.optimizer, "first_nonfinite") else knows_not)
            )
        else:
            self._good_updates = updates_of(model)

    def _stop(self, message: str) -> None:
        self.error = NonFiniteTraining(message)
        self.model.stop_training = True

    def _message(self, update: int) -> str:
        # Keras' `gradient_accumulation_steps` takes several batches for an update.
        number = getattr(self.model.optimizer, "gradient_accumulation_steps", None) or 1
        batches = range((update - 1) * number, update * number)
        places = [divmod(batch, len(self.batches)) for batch in batches]
        pairs = np.concatenate([self.batches.pairs(*place) for place in places])
        pairs = pairs[pairs >= 0]
        (epoch, index), more = places[0], f" and the next {number - 1}" if number > 1 else ""
        store = self.batches.store
        lengths = store.source_lengths[pairs] + store.target_lengths[pairs]
        longest = pairs[(-lengths).argsort(kind="stable")][: self.shown]
        lines = [
            f"Training met a gradient that is not finite in update {update:,}: epoch {epoch + 1}, "
            f"batch {index + 1:,} of {len(self.batches):,}{more}. The weights are those before this update, "
            "and no checkpoint holds later ones. A lower learning rate, more warm-up steps or float32 may "
            "help; also look at the text.",
            f"The update has {len(pairs)} pairs of the training text. Their numbers in the token store, "
            f"counted from 0: {', '.join(map(str, sorted(pairs.tolist())))}",
        ]
        if self.tokenizer is not None:
            lines.append(f"The longest {len(longest)} of them:")
            for pair in longest.tolist():
                for side, ids in (("source", store.source), ("target", store.target)):
                    lines.append(
                        f"  {pair}  {side}: {decode_side(self.tokenizer, ids(pair), side)}"
                    )
        return "\n".join(lines)


@contextlib.contextmanager
def warning_if_diverged(what_is_missing: str) -> Iterator[None]:
    """Warn where the outputs of a model are not finite: it has diverged since it was asked."""
    try:
        yield
    except FloatingPointError as error:
        warnings.warn(f"{what_is_missing} {error}", stacklevel=3)


def _losses(model: keras.Model) -> list[float]:
    return [
        float(keras.ops.convert_to_numpy(metric.total))
        for metric in model.metrics
        if metric.name == "loss" and isinstance(metric, keras.metrics.Mean)
    ]
