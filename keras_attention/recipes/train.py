"""The training of a run: to the end of its budget, over any number of starts, and the average at its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import keras

from keras_attention.callbacks.budget import Budget
from keras_attention.callbacks.checkpoints import Checkpoints, fit_resumably
from keras_attention.callbacks.console import ConsoleProgress
from keras_attention.callbacks.huge_pages import HugePages
from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.callbacks.nonfinite import StopOnNonFinite
from keras_attention.callbacks.patience import StopWithoutGain
from keras_attention.callbacks.perplexity import ValidationPerplexity
from keras_attention.callbacks.signals import StopOnSignal, TrainingStopped
from keras_attention.callbacks.translation_scores import TranslationScores
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.cost import training_flops
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.attention import attention_images, attention_log
from keras_attention.recipes.config import TranslationConfig
from keras_attention.training.checkpoint_store import DamagedCheckpoint, read_manifest
from keras_attention.training.checkpoints import save_average, select_checkpoints
from keras_attention.utils.memory import is_memory_tuned
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import RunFolder
from keras_attention.visualization.summary_writer import SummaryWriter

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
    folder: RunFolder,
    peak: float,
) -> Checkpoints:
    """Train from the last checkpoint in the run's folder, if there is one, to the end of the budget.

    Args:
        model: A compiled model.
        batches: The training part.
        validation: The validation part.
        tokenizer: The run's tokenizer.
        corpus: The text.
        config: The run's settings.
        folder: The run's folder.
        peak: FLOP/s of all devices together.

    Returns:
        The run's checkpoints, which know its history; the last has the state that the model is in.

    Raises:
        TrainingStopped: After Ctrl-C or SIGTERM; a checkpoint was written.
    """
    signals = StopOnSignal()
    budget = Budget(config.steps, config.minutes, batches=batches)
    with SummaryWriter(folder.logs) as writer:
        monitor = TrainingMonitor(
            writer,
            batches,
            every=LOG_EVERY,
            log=MetricsLog(folder.metrics),
            flops=lambda *shape: training_flops(model, [shape]),
            peak=peak,
        )
        translator = Translator(
            model,
            tokenizer,
            beam_size=config.beam_size,
            length_penalty=config.length_penalty,
            show_progress=False,
        )
        scores = _translation_scores(
            translator, corpus, config, monitor, lambda: checkpoints.cut_short
        )
        attention = attention_log(writer, tokenizer, corpus, batches.store, translator, monitor)
        images = (
            attention_images(writer, tokenizer, corpus, model) if config.attention_images else []
        )
        patience = StopWithoutGain(config.patience, cut_short=lambda: checkpoints.cut_short)
        checkpoints = Checkpoints(
            folder.checkpoints,
            config.averaged_checkpoints,
            lambda: signals.signal_name is not None,
            every_minutes=config.checkpoint_minutes or SAFETY_MINUTES,
            every_updates=config.checkpoint_updates,
            average_minutes=config.checkpoint_minutes,
            average_updates=config.checkpoint_updates,
            stateful=[budget, monitor, scores, patience, *attention],
        )
        checkpoints.restore(model)
        if checkpoints.updates:
            within = f"and {checkpoints.batch} batches " if checkpoints.batch else ""
            say(
                f"Going on after epoch {checkpoints.epoch} {within}"
                f"({checkpoints.seconds / 60:.1f} minutes done)"
            )
        updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        if budget.is_over(updates) or patience.is_over:
            return checkpoints
        console = ConsoleProgress(budget, monitor)
        callbacks = [
            signals,
            budget,
            # These add to the logs of the epoch, which the callbacks after them read.
            ValidationPerplexity(validation, lambda: checkpoints.cut_short),
            patience,
            scores,
            # Before the checkpoints, which hold how far its log is.
            monitor,
            *attention,
            checkpoints,
            *images,
            *([HugePages()] if is_memory_tuned() else []),
            console,
            # Last: what it raises at the end of training ends everything.
            StopOnNonFinite(batches, tokenizer, every=LOG_EVERY),
        ]
        try:
            fit_resumably(model, batches, checkpoints, callbacks)
        finally:
            console.close()
            signals.on_train_end()  # Also after an error the signals do again what they did.
    if signals.signal_name is not None:
        say(
            f"Stopped by {signals.signal_name} and saved as '{checkpoints.paths[-1]}'. The same "
            "command goes on with this run."
        )
        raise TrainingStopped(signals.signal_name)
    return checkpoints


def average_last(
    model: Transformer, checkpoints: Checkpoints, config: TranslationConfig, folder: RunFolder
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
            say(f"{error} The average is of the others.")
        else:
            intact.append(path)
    with activity(f"averaging {len(intact)} checkpoints"):
        save_average(model, folder.average, intact, overwrite=True)
    return [path.name for path in intact]


def _translation_scores(
    translator: Translator,
    corpus: Corpus,
    config: TranslationConfig,
    monitor: TrainingMonitor,
    cut_short: Callable[[], bool],
) -> TranslationScores:
    """BLEU and chrF of beam-searched translations of the first validation sentences, now and then."""
    return TranslationScores(
        translator,
        list(itertools.islice(corpus.validation.sources(), VALIDATION_SENTENCES)),
        list(itertools.islice(corpus.references("validation"), VALIDATION_SENTENCES)),
        every_epochs=config.bleu_every,
        monitor=monitor,
        cut_short=cut_short,
    )
