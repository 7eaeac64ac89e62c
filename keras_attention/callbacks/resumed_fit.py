"""Continues a training exactly where a checkpoint was written, as if it had never stopped."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import keras

from keras_attention.callbacks.checkpoints import Checkpoints
from keras_attention.training.checkpoint_store import check_resumable
from keras_attention.training.input_pipeline import endless_batches
from keras_attention.utils.arguments import Count, Has, checked


@checked
def fit_resumably(
    model: Annotated[keras.Model, Has("a compiled Keras model", "fit")],
    batches: Annotated[Any, Has("TokenBatches", "batch", "set_epoch")],
    checkpoints: Annotated[Checkpoints, Has("`Checkpoints`", "epoch", "batch")],
    callbacks: Sequence[Any],
    epochs: Count = sys.maxsize,
) -> None:
    """Train as `model.fit(batches)` does, from the state that `checkpoints.restore(model)` loaded.

    The rest of an incomplete epoch comes first. Callbacks do not notice: they see a single training, and
    the numbers of the batches in their epoch, which is the `epoch` of the batches, too.

    Args:
        model: A compiled model.
        batches: `TokenBatches`.
        checkpoints: The `Checkpoints` of the run; must be among the callbacks.
        callbacks: Keras callbacks, called in this order.
        epochs: Total number of epochs. Defaults to no limit.

    Raises:
        ValueError: If the training cannot be resumed, because of its optimizer, a callback or other batches.
        FloatingPointError: If training was stopped because a gradient or a weight was not finite.
    """
    if checkpoints not in callbacks:
        raise ValueError("`checkpoints` must be among `callbacks`.")
    check_resumable(model, [c for c in callbacks if c not in checkpoints.stateful.values()])
    epoch, start = checkpoints.epoch, checkpoints.batch
    if checkpoints.updates != epoch * len(batches) + start:
        raise ValueError(
            f"'{checkpoints.folder}' ends after {checkpoints.updates:,} updates, at batch {start:,} of "
            f"epoch {epoch + 1:,}, but an epoch has {len(batches):,} batches now: other arguments, or an "
            "earlier version of this package, made other batches. Continue with those, or begin anew in "
            "another folder."
        )
    saved = checkpoints.running_metrics
    if saved is not None and len(saved) != len(model.metrics_variables):
        # Keras makes the variables of compiled metrics only with the first batch.
        model.test_on_batch(*batches.batch(epoch, 0))
    model.fit(
        endless_batches(batches, epoch, start),
        epochs=epochs,
        initial_epoch=epoch,
        steps_per_epoch=len(batches),
        shuffle=False,  # Keras warns of generators without.
        verbose=0,
        callbacks=_FromBatch(callbacks, start, batches, epochs, model),
    )
    if checkpoints.nonfinite is not None:
        raise FloatingPointError(
            f"Training was stopped at update {checkpoints.updates}, because "
            f"{checkpoints.nonfinite} are not finite. The earlier checkpoints are unchanged."
        )


class _FromBatch(keras.callbacks.CallbackList):
    """Callbacks of a training whose first epoch begins with batch `start`, and ends where it would."""

    def __init__(
        self, callbacks: Sequence[Any], start: int, batches: Any, epochs: int, model: keras.Model
    ):
        steps = len(batches)
        super().__init__(list(callbacks), add_history=True, model=model, epochs=epochs, steps=steps)
        self.start, self.steps, self.batches = start, steps, batches
        self.stopped: bool | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.batches.set_epoch(epoch)  # `fit` reads them through a generator.
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_begin(self.start + batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(self.start + batch, logs)
        if self.start and self.start + batch + 1 == self.steps:
            # Keras would go on with as many batches as an epoch has.
            self.stopped, self.model.stop_training = self.model.stop_training, True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.stopped is not None:
            self.model.stop_training, self.stopped = self.stopped, None
        self.start = 0
        super().on_epoch_end(epoch, logs)
