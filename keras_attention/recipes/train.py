"""The training of a run: to the end of its budget, over any number of starts, and the final average."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_attention.callbacks.branch_log import BranchLog
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
from keras_attention.callbacks.together import StopTogether
from keras_attention.callbacks.translation_scores import TranslationScores
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.cost import training_flops
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.attention import attention_images, attention_log
from keras_attention.recipes.config import TranslationConfig
from keras_attention.spec import SpecError
from keras_attention.spec.files import save_spec
from keras_attention.training.agreement import (
    check_agreement,
    chief_first,
    failing_together,
    values_of_all,
)
from keras_attention.training.checkpoint_store import DamagedCheckpoint, read_manifest
from keras_attention.training.checkpoints import save_average, select_checkpoints
from keras_attention.training.distribution import Devices, computing_alone, is_chief
from keras_attention.utils.files import atomic_path, remove_folder
from keras_attention.utils.memory import is_memory_tuned
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import RunFolder
from keras_attention.utils.signed_archive import sign_archive
from keras_attention.visualization.summary_writer import SummaryWriter

VALIDATION_SENTENCES = 100
LOG_EVERY = 50  # updates
# Minutes between checkpoints for resuming: a killed run loses at most this much work.
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
    devices: Devices | None = None,
) -> Checkpoints:
    """Train from the last checkpoint in the run's folder, if there is one, to the end of the budget.

    Args:
        model: A compiled model.
        batches: Batches of the training set.
        validation: Batches of the validation set.
        tokenizer: The run's tokenizer.
        corpus: The text.
        config: The run's settings.
        folder: The run's folder.
        peak: FLOP/s of all devices together.
        devices: The devices that the run uses; one device if not given.

    Returns:
        The run's checkpoints with its history. The last checkpoint has the state of the model.

    Raises:
        TrainingStopped: After Ctrl-C or SIGTERM; a checkpoint was written.
    """
    chief = is_chief()
    devices = devices or Devices()
    signals = StopOnSignal(at_once=devices.num_processes == 1)

    def interrupted() -> bool:
        return signals.signal_name is not None

    budget = Budget(config.steps, config.minutes, batches=batches)
    with contextlib.ExitStack() as stack:
        writer, validation_writer = (
            stack.enter_context(SummaryWriter(path)) if chief else None
            for path in (folder.logs, folder.validation_logs)
        )
        monitor = _monitor(model, batches, folder, writer, validation_writer, peak)
        translator = Translator(
            model,
            tokenizer,
            beam_size=config.beam_size,
            length_penalty=config.length_penalty,
        )
        scores = _translation_scores(
            _shared_among(translator, model, devices),
            corpus,
            config,
            monitor,
            lambda: checkpoints.cut_short,
        )
        attention, images = [], []
        if writer is not None:
            if config.attention_log:
                attention = attention_log(
                    writer, tokenizer, corpus, batches.store, translator, monitor, interrupted
                )
            if config.attention_images:
                images = attention_images(writer, tokenizer, corpus, model, interrupted)
        patience = StopWithoutGain(config.patience, cut_short=lambda: checkpoints.cut_short)
        stateful = [budget, monitor, scores, patience, *attention]
        checkpoints = _checkpoints(folder, config, interrupted, stateful)
        with chief_first():
            checkpoints.set_damaged_aside()
        checkpoints.restore(model)
        check_agreement({"last checkpoint": checkpoints.updates})
        if checkpoints.updates:
            say(
                f"Continuing in epoch {checkpoints.epoch + 1}, after update {checkpoints.updates:,} "
                f"({budget.seconds / 60:.1f} minutes of training done)"
            )
        updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        if patience.is_over:
            say("The validation perplexity stopped improving. To train on, raise --patience.")
        if budget.is_over(updates) or patience.is_over:
            return checkpoints
        console = ConsoleProgress(budget, monitor)
        branches = chief and model.branch_feed_forward is not None
        # This callback adds to the logs of the epoch, which the callbacks after it read.
        perplexity = ValidationPerplexity(validation, lambda: checkpoints.cut_short)
        callbacks = [
            signals,
            budget,
            # Only the chief measures the perplexity; the others wait. All processes translate.
            *([perplexity, patience] if chief else []),
            scores,
            # Before the checkpoints, which store the position in the monitor's log.
            *([monitor, *attention] if chief else []),
            checkpoints,
            *([BranchLog(MetricsLog(folder.branches))] if branches else []),
            *images,
            *([HugePages()] if is_memory_tuned() else []),
            *([console] if chief else []),
            # Last: the error that it raises at the end of training ends everything.
            StopOnNonFinite(batches, tokenizer, every=LOG_EVERY),
            *([StopTogether(signals)] if devices.num_processes > 1 else []),
        ]
        own = batches
        if devices.num_processes > 1:
            own = batches.shard(devices.process_index, devices.num_processes)
        try:
            fit_resumably(model, own, checkpoints, callbacks)
        finally:
            if chief:
                console.close()
            signals.on_train_end()  # Restores the signal handlers, also after an error.
    if signals.signal_name is not None:
        say(
            f"Stopped by {signals.signal_name} and saved as '{checkpoints.paths[-1]}'. The same "
            "command continues this run."
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
            say(f"{error} The average leaves it out.")
        else:
            intact.append(path)
    with activity(f"averaging {len(intact)} checkpoints"):
        save_average(model, folder.average, intact, overwrite=True)
    return [path.name for path in intact]


def save_model(model: Transformer, folder: RunFolder) -> None:
    """Save the model as `model.keras`, and its spec, which needs no Keras, in `spec/`."""
    # A process that is killed in between leaves a model without a spec, never with a wrong one.
    if folder.spec.exists():
        remove_folder(folder.spec)
    with atomic_path(folder.model) as partial:
        model.save(partial)
        sign_archive(partial)
    with contextlib.suppress(SpecError):  # A model that no spec can describe: only Keras loads it.
        save_spec(model.spec(), folder.spec)


def _monitor(
    model: Transformer,
    batches: TokenBatches,
    folder: RunFolder,
    writer: SummaryWriter | None,
    validation_writer: SummaryWriter | None,
    peak: float,
) -> TrainingMonitor:
    """The figures of training, as curves in TensorBoard and lines in the run's folder; by the chief only."""
    return TrainingMonitor(
        writer,
        batches,
        every=LOG_EVERY,
        log=MetricsLog(folder.metrics) if is_chief() else None,
        flops=lambda *shape: training_flops(model, [shape]),
        peak=peak,
        validation_writer=validation_writer,
    )


def _checkpoints(
    folder: RunFolder,
    config: TranslationConfig,
    interrupted: Callable[[], bool],
    stateful: Sequence[Any],
) -> Checkpoints:
    """The run's checkpoints, which the chief writes."""
    return Checkpoints(
        folder.checkpoints,
        config.averaged_checkpoints,
        interrupted,
        every_minutes=config.checkpoint_minutes or SAFETY_MINUTES,
        every_updates=config.checkpoint_updates,
        average_minutes=config.checkpoint_minutes,
        average_updates=config.checkpoint_updates,
        stateful=stateful,
        write=is_chief(),
    )


def _shared_among(
    translator: Translator, model: Transformer, devices: Devices
) -> Callable[[list[str]], Sequence[str]]:
    """A translator that shares the sentences among all processes; every process must call it."""
    count = devices.num_processes
    if count == 1:
        return translator

    def translate(sources: list[str]) -> list[str]:
        with failing_together(), computing_alone(model):
            own = list(translator(sources[devices.process_index :: count]))
        shares = values_of_all(own)
        return [shares[index % count][index // count] for index in range(len(sources))]

    return translate


def _translation_scores(
    translate: Callable[[list[str]], Sequence[str]],
    corpus: Corpus,
    config: TranslationConfig,
    monitor: TrainingMonitor,
    cut_short: Callable[[], bool],
) -> TranslationScores:
    """BLEU and chrF of the first validation sentences, translated by beam search every few epochs."""
    return TranslationScores(
        translate,
        list(itertools.islice(corpus.validation.sources(), VALIDATION_SENTENCES)),
        list(itertools.islice(corpus.references("validation"), VALIDATION_SENTENCES)),
        every_epochs=config.bleu_every,
        monitor=monitor,
        cut_short=cut_short,
    )
