"""The training loop of a run: from its last checkpoint to the end of its budget."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_attention.callbacks.base import RunCallback, Stop
from keras_attention.callbacks.best import BestCheckpoint, StopWithoutGain
from keras_attention.callbacks.budget import Budget
from keras_attention.callbacks.checkpoints import Checkpoints
from keras_attention.callbacks.console import ConsoleProgress
from keras_attention.callbacks.huge_pages import HugePages
from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.callbacks.monitor import TrainingMonitor
from keras_attention.callbacks.nonfinite import StopOnNonFinite
from keras_attention.callbacks.resumed_fit import fit_resumably
from keras_attention.callbacks.signals import StopOnSignal, StopTogether, TrainingStopped
from keras_attention.callbacks.validation import TranslationScores, ValidationPerplexity
from keras_attention.decoding.translator import Translator
from keras_attention.engine.select import EngineSelector
from keras_attention.evaluation.cost import training_flops
from keras_attention.recipes.catalog import forecast_for
from keras_attention.recipes.config import MEASURES
from keras_attention.recipes.messages import spoken_measure
from keras_attention.recipes.run import Run
from keras_attention.recipes.shares import Shares
from keras_attention.recipes.text import OLD_DOMAIN
from keras_attention.spec import SpecError
from keras_attention.training.agreement import (
    check_agreement,
    chief_first,
    failing_together,
    values_of_all,
)
from keras_attention.training.distribution import computing_alone, is_chief
from keras_attention.training.processes import LostProcess
from keras_attention.utils.forecast import Forecast, duration
from keras_attention.utils.memory import is_memory_tuned
from keras_attention.utils.progress import say
from keras_attention.visualization.event_files import SummaryWriter


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


VALIDATION_SENTENCES = 100
LOG_EVERY = 50  # updates
# Minutes between checkpoints for resuming: a killed run loses at most this much work.
SAFETY_MINUTES = 10.0
# Compiling that takes less is not worth a line.
SHORT_SECONDS = 10.0
Logs = Callable[[SummaryWriter, Translator, TrainingMonitor], Sequence[RunCallback]]


class TrainingLoop:
    """The callbacks of a run's training, and the order in which they are called.

    All processes that train together make a loop; the chief writes. `held` receives the files that are open
    as long as the loop. `logs` makes further callbacks of the chief's, which show what the model does.
    """

    def __init__(self, run: Run, held: contextlib.ExitStack, logs: Logs | None):
        config, folder = run.config, run.folder
        self.run = run
        self.stop = Stop()
        self.signals = StopOnSignal(self.stop, at_once=run.devices.num_processes == 1)
        self.budget = Budget(
            config.steps,
            config.minutes,
            batches=run.batches,
            cooldown=config.cooldown,
            patience=config.patience,
        )
        self.writers = [
            held.enter_context(SummaryWriter(path)) if is_chief() else None
            for path in (folder.logs, folder.validation_logs)
        ]
        devices, self.batches = run.devices, run.batches
        if devices.num_processes > 1:
            self.batches = self.batches.shard(devices.process_index, devices.num_processes)
        self.monitor = self._monitor()
        self.perplexity = ValidationPerplexity(run.validation, self.stop)
        self.translator = translator = run.translator(run.model)
        self.scores = self._scores(translator)
        own = logs(self.writers[0], translator, self.monitor) if logs and self.writers[0] else []
        self.callbacks = [*own, *run.callbacks]
        monitor, mode = MEASURES[config.best_by or "perplexity"]
        cooling = None if config.cooldown is None else self.budget
        self.patience = StopWithoutGain(config.patience, monitor, self.stop, cooling, mode)
        self.best = []
        if config.best_by is not None:
            self.best = [BestCheckpoint(monitor, mode, self.stop, cooling)]
        for callback in self.callbacks:
            if isinstance(callback, RunCallback):
                callback.stop = self.stop
        self.checkpoints = self._checkpoints()
        corpus = run.corpus
        texts = corpus.splits[run.test_split], corpus.extra.get(OLD_DOMAIN, ())
        systems = 1 + 2 * (config.averaged_checkpoints > 1)  # first, last and average
        # And the best, the pretrained model, and the mean with it.
        systems += len(self.best) + (config.start_from is not None) + (config.start_share > 0)
        sentences = sum(map(len, texts))
        self.beside = WorkBeside(self.perplexity, self.scores, len(run.batches), sentences, systems)

    def restore(self) -> bool:
        """Continue from the last checkpoint, if there is one; return whether anything is left to train."""
        checkpoints, budget, model = self.checkpoints, self.budget, self.run.model
        with chief_first():
            if checkpoints.rewind(self._is_outdated):
                say("The budget is another one: back to where the learning rate began to fall.")
            checkpoints.set_damaged_aside()
        checkpoints.restore(model)
        check_agreement({"last checkpoint": checkpoints.updates})
        if checkpoints.updates:
            say(
                f"Continuing in epoch {checkpoints.epoch + 1}, after update {checkpoints.updates:,} "
                f"({budget.seconds / 60:.1f} minutes of training done)"
            )
            if budget.compiling > SHORT_SECONDS:
                say(
                    f"The first batches of all shapes take about {duration(budget.compiling)}, as before, "
                    "which does not count as training."
                )
        if self.patience.is_over:
            measure = spoken_measure(self.run.config.best_by)
            say(f"The validation {measure} stopped improving. To train on, raise --patience.")
        # Also if a callback ended it, and the process was killed before the report.
        is_over = budget.is_over(checkpoints.updates) or (
            checkpoints.finished and budget.has_same_limits
        )
        return not (is_over or (self.patience.is_over and budget.cools_from is None))

    def measure_start(self) -> None:
        """Say how good the pretrained model is, which is the best one as long as no checkpoint is better."""
        run = self.run
        found: dict[str, float] = {}
        monitor = MEASURES[run.config.best_by or "perplexity"][0]
        with failing_together():  # The others do not wait for a chief that has failed.
            if is_chief():
                self.perplexity.set_model(run.model)
                found = self.perplexity.measure()
        if self.best and monitor != "val_perplexity":  # All processes translate.
            self.scores.set_model(run.model)
            found |= {f"val_{name}": value for name, value in self.scores.scores().items()}
        if not is_chief():
            return
        for name in dict.fromkeys(("val_perplexity", monitor)):
            measure = spoken_measure(name.removeprefix("val_"))
            say(f"Before the first update the validation {measure} is {found[name]:.3f}.")
        for best in self.best:
            best.begin(found[monitor])

    def fit(self) -> None:
        """Train to the end of the budget; raise TrainingStopped after Ctrl-C, SIGTERM and the like."""
        console = self._console()
        if is_chief():
            self._compile_beside()
        is_alone = False
        try:
            fit_resumably(self.run.model, self.batches, self.checkpoints, self._callbacks(console))
        except LostProcess:
            is_alone = True
            raise
        finally:
            if is_chief():
                console.close()
            # Not where torchrun ends this process, too: its SIGTERM must not come before the last words.
            if not is_alone:
                self.signals.on_train_end()  # Restores the signal handlers, also after an error.
        if self.stop.signal_name is not None:
            say(
                f"Stopped by {self.stop.signal_name} and saved as '{self.checkpoints.paths[-1]}'. The "
                "same command continues this run."
            )
            raise TrainingStopped(self.stop.signal_name)

    def _compile_beside(self) -> None:
        """Let the search of what is scored at the end be compiled while the model trains."""
        sources, scored = self.scores.sources, self.beside.systems * self.beside.sentences
        tokens = sum(map(len, self.translator.tokenizer.encode(sources))) / len(sources)
        with contextlib.suppress(SpecError):  # of a model that no engine can run
            spec = self.run.model.spec()
            rows = scored * tokens * self.translator.beam_size
            EngineSelector(spec, spec.dtype).compile_beside(rows, self.run.config.start_from)

    def _callbacks(self, console: ConsoleProgress) -> list[keras.callbacks.Callback]:
        run, chief = self.run, is_chief()
        return [
            self.signals,
            self.budget,
            # Only the chief measures the perplexity; the others wait. All processes translate.
            # The perplexity is added to the logs of the epoch, which the callbacks after it read.
            *([self.perplexity] if chief else []),
            self.scores,
            *([*self.best, self.patience] if chief else []),
            # Before the checkpoints, which store the position in the monitor's log.
            *([self.monitor] if chief else []),
            # After all that a run logs, and before the checkpoints, which store whether training ends.
            *self.callbacks,
            self.checkpoints,
            *([HugePages()] if is_memory_tuned() else []),
            *([console] if chief else []),
            # Last: the error that it raises at the end of training ends everything.
            StopOnNonFinite(run.batches, run.tokenizer, every=LOG_EVERY),
            *([StopTogether(self.signals)] if run.devices.num_processes > 1 else []),
        ]

    def _console(self) -> ConsoleProgress:
        """Return the progress line, after a line on the budget, which comes again when the speed is known."""
        run, budget = self.run, self.budget
        forecast = forecast_for(run.config, run.text, len(run.batches))
        told = _tell(forecast, budget, self.checkpoints.updates)

        def announce() -> None:
            if budget.updates != budget.last_step:
                _tell(told, budget, budget.updates, is_advised=bool(told.advice))

        return ConsoleProgress(
            budget,
            self.monitor,
            announce=announce if told.seconds is None else None,
            beside=self.beside,
        )

    def _is_outdated(self, manifest: Mapping[str, Any]) -> bool:
        """Whether a checkpoint has updates of a cool-down that another budget began."""
        state = manifest["callbacks"]["Budget"]
        return self.budget.is_outdated(state) and manifest["updates"] > state["cooldown"]["updates"]

    def _monitor(self) -> TrainingMonitor:
        """Return the figures of training, as curves in TensorBoard and lines in a file; by the chief only."""
        run = self.run
        writer, validation_writer = self.writers
        return TrainingMonitor(
            writer,
            self.batches,  # the ones whose epoch `fit_resumably` sets
            every=LOG_EVERY,
            log=MetricsLog(run.folder.metrics) if is_chief() else None,
            flops=lambda *shape: training_flops(run.model, [shape]),
            peak=run.peak,
            validation_writer=validation_writer,
            budget=self.budget,
        )

    def _checkpoints(self) -> Checkpoints:
        config = self.run.config
        # One to average is not enough to be safe: the last one may be damaged.
        least = 1 if config.cooldown is None else 2
        return Checkpoints(
            self.run.folder.checkpoints,
            max(least, config.averaged_checkpoints),
            self.stop,
            every_minutes=config.checkpoint_minutes or SAFETY_MINUTES,
            every_updates=config.checkpoint_updates,
            average_minutes=config.checkpoint_minutes,
            average_updates=config.checkpoint_updates,
            stateful=[
                self.budget,
                self.monitor,
                self.patience,
                *self.best,
                Shares(self.run.model, config, self.run.devices),
                *(callback for callback in self.callbacks if isinstance(callback, RunCallback)),
            ],
            write=is_chief(),
        )

    def _scores(self, translator: Translator) -> TranslationScores:
        """BLEU and chrF of the first validation sentences, translated by beam search every few epochs."""
        run, devices = self.run, self.run.devices
        count = devices.num_processes

        def translate(sources: list[str]) -> Sequence[str]:
            """Translate a share of the sentences in each process."""
            with failing_together(), computing_alone(run.model):
                own = list(translator(sources[devices.process_index :: count]))
            shares = values_of_all(own)
            return [shares[index % count][index // count] for index in range(len(sources))]

        return TranslationScores(
            translator if count == 1 else translate,
            list(itertools.islice(run.text.validation.sources(), VALIDATION_SENTENCES)),
            list(itertools.islice(run.text.references("validation"), VALIDATION_SENTENCES)),
            every_epochs=run.config.bleu_every,
            monitor=self.monitor,
            stop=self.stop,
            language=run.corpus.target_language,
        )


def train_to_end(run: Run, logs: Logs | None) -> TrainingLoop:
    """Train a run from its last checkpoint, if any, to the end of its budget; return its loop."""
    with contextlib.ExitStack() as held:
        loop = TrainingLoop(run, held, logs)
        if loop.restore():
            if run.resolved.start is not None and not loop.checkpoints.updates:
                loop.measure_start()
            loop.fit()
        return loop


def _tell(forecast: Forecast, budget: Budget, updates: int, is_advised: bool = False) -> Forecast:
    """Say what is left of the budget, and what the recipe advises unless that was said; return both."""
    known = budget.forecast(updates, forecast)
    say(str(known))
    if known.advice and not is_advised:
        say(known.advice)
    return known
