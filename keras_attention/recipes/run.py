"""A run: from a text to a trained model and its report (sections 5 and 6.1); the place of its order."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_attention.callbacks.base import checked_callbacks, updates_of
from keras_attention.callbacks.signals import stopping_at_once
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.cost import matmul_peak
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.evaluation.report import Sentences, evaluation_report, write_report
from keras_attention.evaluation.training_cost import training_cost
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.aligning import alignment_figures
from keras_attention.recipes.chosen_checkpoints import ChosenCheckpoints
from keras_attention.recipes.config import BUDGET, TranslationConfig
from keras_attention.recipes.loop import train
from keras_attention.recipes.messages import (
    batches_text,
    corpus_text,
    device_text,
    finished_text,
    model_text,
    results_text,
)
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.results import evaluation_figures, old_domain, run_figures
from keras_attention.recipes.saving import save_model
from keras_attention.recipes.shares import check_is_shared, check_shares
from keras_attention.recipes.start import Start
from keras_attention.training.agreement import (
    check_agreement,
    check_same_texts,
    chief_first,
    failing_together,
)
from keras_attention.training.checkpoint_store import DamagedCheckpoint, read_manifest
from keras_attention.training.checkpoints import save_average
from keras_attention.training.distribution import (
    Devices,
    device_kind,
    distribution_scope,
    is_chief,
)
from keras_attention.training.joining import check_launch, check_workers
from keras_attention.utils.checks import check_path, counted
from keras_attention.utils.files import write_atomically
from keras_attention.utils.progress import activity, say, show, silenced
from keras_attention.utils.run_folder import SEARCH_SETTINGS, RunFolder
from keras_attention.utils.versions import environment
from keras_attention.visualization.summary_writer import SummaryWriter


def train_translation(
    corpus: Corpus,
    config: TranslationConfig,
    output_dir: str | os.PathLike[str],
    finish: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
) -> dict[str, Any]:
    """Train on a corpus, translate its test set and score it. All files are in one folder.

    The folder gets `config.json`, `tokenizer/`, `store/` (token ids), `checkpoints/`, `logs/` (for
    TensorBoard), `averaged/` and `model.keras` (both the average), `translations.txt`, `references.txt` and
    `report.json`.

    Call it again with the same arguments to continue a run that was stopped or killed: it continues from
    its last checkpoint as if nothing had happened. A finished run returns its report. The settings in
    `config.changeable` may change between two starts. So a finished run trains on if its budget is raised,
    unless its learning rate followed the budget from the start. If the rate has a `cooldown`, training
    goes on from where that began, and the result is that of a run with the new budget.

    Args:
        corpus: What to train on. Without a test set, the validation set is translated.
        config: The settings.
        output_dir: The run's folder.
        finish: Whether to end a run that was stopped, instead of training to the end of its budget: a
            `cooldown` begins now, and takes its share of the updates that there are then. A run without one
            ends at its last checkpoint. Defaults to False.
        callbacks: Keras callbacks, called as `fit` calls them, in every process. At the end of an epoch they
            see the validation scores; if one sets `model.stop_training`, the run ends. The checkpoints hold
            the state of those that are a `RunCallback`, of which there may be one of a class.

    Returns:
        The report: every figure that was printed. If several processes train, process 0 returns it, and
        the others return an empty dict.

    Raises:
        ValueError: If no model can be made from the settings, the folder belongs to another
            configuration or corpus, or another process works on it.
        TrainingStopped: A `KeyboardInterrupt`, after Ctrl-C, SIGTERM, SIGHUP or SIGQUIT; the run can be
            resumed.
        OSError: If a checkpoint cannot be written, for instance because the disk is full.
    """
    return Run(corpus, config, output_dir, finish=finish, callbacks=callbacks).complete()


class Run(Start):
    """A run of training: a text, settings, and the folder of all that comes of them.

    Its parts are made when they are first asked for: the tokenizer, the batches, the model. `started` claims
    the folder; within it, `train`, `average`, `save` and `evaluate` follow each other. `Run.open` is a
    finished run.

    Args:
        corpus: What to train on.
        config: The settings.
        folder: The run's folder.
        shared: Folder of `tokenizer/` and `store/`, which several runs may share. Defaults to the run's own.
        finish, callbacks: See `train_translation`.

    Attributes:
        corpus, config, callbacks: The arguments; with `finish`, `started` changes the budget.
        folder: The `RunFolder`.
        devices: The devices that the run uses.
        training: Figures of the training, after `train`: `updates`, `minutes`, `history` and others.
        report: The report of a finished run, else None.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: TranslationConfig,
        folder: str | os.PathLike[str],
        *,
        shared: str | os.PathLike[str] | None = None,
        finish: bool = False,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
    ):
        super().__init__(corpus, config, RunFolder(check_path("output_dir", folder)), finish)
        self.shared = self.folder.path if shared is None else Path(shared)
        self.callbacks = checked_callbacks(callbacks or ())
        self.devices = Devices()
        self.report: dict[str, Any] | None = None
        self.training: dict[str, Any] = {}
        self._scope = contextlib.ExitStack()

    # What the settings come to.

    @functools.cached_property
    def resolved(self) -> Resolved:
        """The settings on the devices that there are."""
        return Resolved.of(self.config)

    @property
    def row_multiple(self) -> int:
        """The number that divides the rows of a batch on these devices."""
        return self.resolved.row_multiple

    # What a run is made of.

    @property
    def text(self) -> Corpus:
        """The text as the tokenizer reads it."""
        return self.corpus

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, from the folder or trained now."""
        text = self.text
        with chief_first():
            return self.resolved.tokenizer(text, self.shared / "tokenizer")

    @functools.cached_property
    def _batches(self) -> tuple[Any, Any]:  # None for a finished run whose stores are gone
        text, tokenizer = self.text, self.tokenizer
        with chief_first():
            return self.resolved.batches(text, tokenizer, self.shared / "store", self.alignments)

    @property
    def batches(self) -> TokenBatches:
        """Batches of the training set."""
        return self._batches[0]

    @property
    def validation(self) -> TokenBatches:
        """Batches of the validation set."""
        return self._batches[1]

    @functools.cached_property
    def model(self) -> Transformer:
        """The model, compiled for training."""
        return self.resolved.model(self.tokenizer.vocabulary_size)

    @property
    def _model_name(self) -> str:
        config = self.config
        if config.start_from is None:
            return f"{config.preset}, {config.dtype}"
        frozen = f", {config.freeze} frozen" if config.freeze else ""
        rates = f"dropout {self.model.dropout:g}, label smoothing {config.label_smoothing:g}"
        return f"of '{config.start_from}'{frozen}, {rates}, {config.dtype}"

    @property
    def peak(self) -> float:
        """FLOP/s of all devices together, measured."""
        return self.resolved.replicas * measured_peak(self.config.dtype)

    def translator(self, model: Any, **options: Any) -> Translator:
        """Return a translator of a model, with the search settings of the run."""
        return Translator(model, self.tokenizer, **self.search, **options)

    @property
    def search(self) -> dict[str, Any]:
        """The settings of the search."""
        return {name: getattr(self.config, name) for name in SEARCH_SETTINGS}

    @property
    def chosen(self) -> ChosenCheckpoints:
        """The checkpoints that stand for the run."""
        return ChosenCheckpoints(self.folder, vars(self.config))

    def sentences(self, split: str, name: str) -> Sentences:
        """Return a part of the text, to translate and score it."""
        sources, references = self.corpus.splits[split].sources(), self.corpus.references(split)
        return Sentences(list(sources), list(references), name, self.corpus.target_language)

    # The order of a run.

    def complete(self) -> dict[str, Any]:
        """Do all that is not done yet, as `train_translation` does; return the report."""
        with self.started():
            if self.report is None:
                self.train()
                try:
                    with stopping_at_once():
                        self.average()
                        self.save()
                        self.report = self.evaluate()
                except KeyboardInterrupt:
                    say(
                        "The training is done and saved, its report is not. The same command writes it."
                    )
                    raise
        return self.report

    def prepare(self) -> None:
        """Make the tokenizer and the token ids, which a start of the run makes first."""
        with self.started():
            if self.report is None:
                _ = self._batches

    def check(self) -> None:
        """Refuse what cannot be trained, in all processes, before anything is written."""
        with failing_together():
            self.check_packages()
            self.set_budget()
        if self.finish and is_chief():
            steps, minutes = self.config.steps, self.config.minutes
            end = f"{steps:,} updates" if steps else f"{minutes:g} minutes"
            say(f"Finishing: this run ends after {end}. Then come translations and report.")
        with failing_together():
            has_trained = self.folder.has_trained()
            if has_trained:
                check_shares(self.folder, self.resolved.replicas, self.config.accumulation_steps)
            self.resolved.check_model()
            if not has_trained:  # The batches of a run stay as they are.
                self.resolved.check_room(self.corpus.train)
            settings = self.settings
        check_same_texts(self.corpus.splits)
        place = str(self.folder.path.resolve())
        check_agreement({**settings, **environment(), "machine": None, "output_dir": place})
        with failing_together():
            self.folder.check(settings, self.changeable, self.reasons)

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        """Check the run, join the devices, and keep the folder from other processes.

        Of several processes, all but the chief are silent within. If the run is finished, it has a `report`.
        """
        check_workers()
        check_launch(self.config.strategy)
        with contextlib.ExitStack() as held, contextlib.ExitStack() as self._scope:
            scope = distribution_scope(self.config.strategy, self.config.replicas)
            self.devices = self._scope.enter_context(scope)
            self.check()
            self.report = self.found_report()
            if self.report is None:
                self._claim(held)
            yield

    def train(self) -> None:
        """Prepare the text, make the model and train it, alone or with other processes."""
        keras.utils.set_random_seed(self.config.seed)
        say(device_text(self.devices.num_replicas, device_kind(), self.config.strategy))
        say(corpus_text(self.corpus, self.resolved.start))
        say(batches_text(self.batches))
        with activity("building the model"):
            _ = self.model, self.peak
        say(model_text(self.model, self._model_name, self.batches))
        checkpoints = train(self)
        self.training = {
            "updates": updates_of(self.model),
            "minutes": round(checkpoints.seconds / 60, 2),
            "training_minutes": round(checkpoints.stateful["Budget"].seconds / 60, 2),
            "history": checkpoints.history,
            "patience_is_over": checkpoints.stateful["StopWithoutGain"].is_over,
        }
        if self.devices.num_processes > 1:
            # The chief continues alone, with a model that is not shared with the other processes.
            self._scope.close()
            del self.model

    @property
    def is_chief(self) -> bool:
        """Whether this process does what follows the training; one of several does."""
        return self.devices.process_index == 0

    def average(self) -> None:
        """Give the model the average of the last checkpoints, kept in `averaged/`, or the best one."""
        if not self.is_chief:
            return
        chosen, intact = self.chosen, []
        for path in chosen.averaged():
            try:
                read_manifest(path)
            except DamagedCheckpoint as error:
                say(f"{error} The average leaves it out.")
            else:
                intact.append(path)
        with activity(f"averaging {counted(len(intact), 'checkpoint')}"):
            save_average(self.model, self.folder.average, intact, True, chosen.load)
        self.training["averaged_checkpoints"] = len(intact)
        self.training["averaged_from"] = [path.name for path in intact]
        if chosen.best is not None:
            self.training["best_checkpoint"] = {**chosen.best, "is_final": chosen.ends_with_best}
            if chosen.ends_with_best:
                chosen.load(self.model, chosen.named("best"))
        elif self.config.final_model == "best":
            say(
                f"No {self.config.best_by} was measured, so no checkpoint is the best. The average is used."
            )

    def save(self) -> None:
        """Save the model as `model.keras`, and its spec, which needs no Keras, in `spec/`."""
        if self.is_chief:
            with activity("saving the model"):
                save_model(self.model, self.folder)

    def evaluate(self) -> dict[str, Any]:
        """Translate the test set with the average and what it is made of, score, and write the report."""
        if not self.is_chief:
            return {}
        split = "validation" if self.corpus.test is None else "test"
        text = self.sentences(split, f"{self.corpus.name}, {split} part")
        evaluation = self.evaluation(text)
        evaluation |= old_domain(self) | alignment_figures(self, split)
        evaluation["also_trained"] = self.corpus.also_trained
        report = {
            **run_figures(self),
            "training": self.training,
            **evaluation_figures(evaluation, split, text),
        }
        write_atomically(self.folder.references, "\n".join([*text.references, ""]))
        # A model may write a line break, of byte pieces; line i of the file belongs to sentence i.
        lines = [" ".join(text.splitlines()) for text in evaluation["translations"]]
        write_atomically(self.folder.translations, "\n".join([*lines, ""]))
        with SummaryWriter(self.folder.logs, resumes=False) as writer:
            for metric in ("bleu", "chrf"):
                value, updates = report["test"][metric], self.training["updates"]
                writer.scalar(f"with_average/{split}_{metric}", value, updates)
        write_report(evaluation, self.folder.path, self.settings, figures=report)
        show(results_text(self.folder, report, can_go_on="steps" in self.config.changeable))
        return self.folder.finished_report() or report

    def evaluation(
        self,
        text: Sentences,
        *,
        samples: int = 1000,
        translations_alone: bool = False,
    ) -> dict[str, Any]:
        """Evaluate the checkpoints that the run averages, their average, and the best one if it is kept.

        Afterwards the model has the weights that the run ends with. `translations_alone` leaves out the
        cost and the perplexity. `samples` are those of the paired tests.
        Returns what `evaluation_report` returned.
        """
        cost = None
        if self.batches is not None and not translations_alone:
            last = read_manifest(self.chosen.averaged()[-1], verify=False)
            cost = training_cost(
                self.model,
                self.batches,
                last["updates"],
                seconds=last["seconds"],
                peak=self.peak,
            )
        meter = None
        if self.validation is not None and not translations_alone:
            meter = PerplexityMeter(self.model)
        report = evaluation_report(
            self.chosen.systems(self.model, self.resolved.restart),
            self.translator(self.model),
            text,
            measure_perplexity=None if meter is None else lambda: meter(self.validation),
            cost=cost,
            decoding=self.search,
            samples=samples,
        )
        return report if self.chosen.best is None else {**report, "best": self.chosen.best}

    # How a run begins.

    def found_report(self) -> dict[str, Any] | None:
        """Return the report, if the run is finished; processes beside the chief get an empty one."""
        report = self.folder.finished_report()
        reported = (report or {}).get("config", {})
        how_long = (*BUDGET, "patience")
        if report is None or any(reported.get(name, 0) != self.settings[name] for name in how_long):
            return None
        if not is_chief():
            return {}
        self.folder.remove_leftovers()  # From a process that was killed after its last file.
        say(finished_text(self.folder, report, can_go_on="steps" in self.config.changeable))
        return report

    def _claim(self, held: contextlib.ExitStack) -> None:
        """Claim the folder; `held` receives the lock, and the silence of all but the chief."""
        if not is_chief():
            held.enter_context(silenced())
        with failing_together():
            if is_chief():
                held.enter_context(self.folder.locked())
        if self.devices.num_processes > 1:
            check_is_shared(self.folder.path)
        with failing_together():
            if is_chief():
                self.folder.claim(self.settings, self.changeable)

    # A finished run.

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """Open the folder of a finished run, to evaluate it, or to use its model and tokenizer."""
        from keras_attention.recipes.finished_run import FinishedRun

        return FinishedRun(folder)


@functools.cache
def measured_peak(dtype: str) -> float:
    """`matmul_peak`, once in a process, which may train many runs."""
    return matmul_peak(dtype)
