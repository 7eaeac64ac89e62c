"""The training of a run: to the end of its budget, over any number of starts, and the average at its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from keras_attention.callbacks.attention_heatmaps import AttentionHeatmaps
from keras_attention.callbacks.checkpoints import Checkpoints, fit_resumably
from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.callbacks.nonfinite import StopOnNonFinite
from keras_attention.callbacks.run import (
    Budget,
    ConsoleProgress,
    StopOnSignal,
    TrainingStopped,
)
from keras_attention.callbacks.translation_scores import TranslationScores
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.cost import matmul_peak, training_flops
from keras_attention.evaluation.perplexity import perplexity
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.prepare import replica_count
from keras_attention.training.checkpoint_store import DamagedCheckpoint, read_manifest
from keras_attention.training.checkpoints import save_average, select_checkpoints
from keras_attention.visualization.summary_writer import SummaryWriter

if TYPE_CHECKING:
    from keras_attention.recipes.translation import TranslationConfig

VALIDATION_SENTENCES = 100
LOG_EVERY = 50  # updates
# Of what was done since the last checkpoint, a killed run loses as much at most.
SAFETY_MINUTES = 10.0


def train_to_budget(
    model: Transformer,
    batches: TokenBatches,
    validation: TokenBatches,
    tokenizer: Tokenizer,
    corpus: Corpus,
    config: TranslationConfig,
    folder: Path,
) -> Checkpoints:
    """Train from the last checkpoint in the run's folder, if there is one, to the end of the budget.

    Returns:
        The run's checkpoints, which know its history; the last has the state that the model is in.

    Raises:
        TrainingStopped: After Ctrl-C or SIGTERM; a checkpoint was written.
    """
    signals = StopOnSignal()
    with SummaryWriter(folder / "logs") as writer:
        monitor = TrainingMonitor(
            writer,
            batches,
            every=LOG_EVERY,
            log=MetricsLog(folder / "metrics.jsonl"),
            flops=lambda *shape: training_flops(model, [shape]),
            peak=replica_count(config) * matmul_peak(config.dtype),
        )
        scores = _translation_scores(
            model, tokenizer, corpus, config, monitor, lambda: checkpoints.cut_short
        )
        checkpoints = Checkpoints(
            folder / "checkpoints",
            config.averaged_checkpoints,
            lambda: signals.signal_name is not None,
            every_minutes=config.checkpoint_minutes or SAFETY_MINUTES,
            every_updates=config.checkpoint_updates,
            average_minutes=config.checkpoint_minutes,
            average_updates=config.checkpoint_updates,
            stateful=[monitor, scores],
        )
        checkpoints.restore(model)
        if checkpoints.updates:
            within = f"and {checkpoints.batch} batches " if checkpoints.batch else ""
            print(
                f"Going on after epoch {checkpoints.epoch} {within}"
                f"({checkpoints.seconds / 60:.1f} minutes done)"
            )
        budget = Budget(config.steps, config.minutes, checkpoints.seconds)
        updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        if budget.is_over(updates, checkpoints.seconds):
            return checkpoints
        note = "synthetic data" if corpus.synthetic else ""
        sample = _sample_pair(corpus)
        callbacks = [
            signals,
            budget,
            # These add to the logs of the epoch, which the callbacks after them read.
            ValidationPerplexity(validation, checkpoints),
            scores,
            # Before the checkpoints, which hold how far its log is.
            monitor,
            checkpoints,
            AttentionHeatmaps(model, tokenizer, sample, writer, every=0, note=note),
            ConsoleProgress(budget),
            # Last: what it raises at the end of training ends everything.
            StopOnNonFinite(batches, tokenizer, every=LOG_EVERY),
        ]
        try:
            fit_resumably(model, batches, checkpoints, callbacks)
        finally:
            signals.on_train_end()  # Also after an error the signals do again what they did.
    if signals.signal_name is not None:
        print(
            f"\nStopped by {signals.signal_name} and saved as '{checkpoints.paths[-1]}'. The same "
            "command goes on with this run."
        )
        raise TrainingStopped(signals.signal_name)
    return checkpoints


def average_last(
    model: Transformer, checkpoints: Checkpoints, config: TranslationConfig, folder: Path
) -> list[str]:
    """Give the model the average of the last checkpoints, keep it in `averaged/`; return their names."""
    intact = []
    chosen = select_checkpoints(
        checkpoints.folder,
        config.averaged_checkpoints,
        config.checkpoint_minutes,
        config.checkpoint_updates,
    )
    for path in chosen:
        try:
            read_manifest(path)
        except DamagedCheckpoint as error:
            print(f"{error} The average is of the others.")
        else:
            intact.append(path)
    save_average(model, folder / "averaged", intact, overwrite=True)
    return [path.name for path in intact]


class ValidationPerplexity(keras.callbacks.Callback):
    """Adds the perplexity of the validation part to the logs of an epoch, as `val_perplexity`.

    Args:
        batches: The validation part.
        checkpoints: The run's; they know whether an epoch was cut short, after which nothing is scored.
    """

    def __init__(self, batches: TokenBatches, checkpoints: Checkpoints):
        super().__init__()
        self.batches = batches
        self.checkpoints = checkpoints

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs is not None and not self.checkpoints.cut_short:
            logs["val_perplexity"] = perplexity(self.model, self.batches)


def _translation_scores(
    model: Transformer,
    tokenizer: Tokenizer,
    corpus: Corpus,
    config: TranslationConfig,
    monitor: TrainingMonitor,
    cut_short: Callable[[], bool],
) -> TranslationScores:
    """BLEU and chrF of beam-searched translations of the first validation sentences, now and then."""
    translator = Translator(
        model,
        tokenizer,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
        show_progress=False,
    )
    return TranslationScores(
        translator,
        list(itertools.islice(corpus.validation.sources(), VALIDATION_SENTENCES)),
        list(itertools.islice(corpus.references("validation"), VALIDATION_SENTENCES)),
        every_epochs=config.bleu_every,
        monitor=monitor,
        cut_short=cut_short,
    )


def _sample_pair(corpus: Corpus) -> tuple[str, str]:
    """A validation pair of middling length to look at: long enough to say something, short enough to read."""
    pairs = itertools.islice(corpus.validation, VALIDATION_SENTENCES)
    return min(pairs, key=lambda pair: (abs(len(pair[0].split()) - 10), pair))
