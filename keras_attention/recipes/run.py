"""What a run is: a text, settings, a folder, and the parts that are made of them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_attention.callbacks.base import checked_callbacks
from keras_attention.data.alignments import WordAlignments
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.cost import matmul_peak, training_cost
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.evaluation.report import Sentences, evaluation_report
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.chosen_checkpoints import ChosenCheckpoints
from keras_attention.recipes.config import BUDGET, TranslationConfig
from keras_attention.recipes.messages import finished_text
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.shares import check_is_shared, check_shares
from keras_attention.recipes.start import FOLLOWS_BUDGET, settings_of, with_budget
from keras_attention.training.agreement import (
    check_agreement,
    check_same_texts,
    chief_first,
    failing_together,
)
from keras_attention.training.distribution import Devices, distribution_scope, is_chief
from keras_attention.training.joining import check_launch
from keras_attention.utils.lazily import check_event_files, check_moses
from keras_attention.utils.progress import say, silenced
from keras_attention.utils.run_folder import CHECKPOINT, SEARCH_SETTINGS, RunFolder
from keras_attention.utils.versions import environment


class Run:
    """A run of training: a text, settings, and the folder of all that comes of them.

    Its parts are made when they are first asked for: the tokenizer, the batches, the model. `started` claims
    the folder; what follows within it, and in which order, says `recipes.order`.

    Several runs may have one `shared` folder of `tokenizer/` and `store/`; by default each has its own. With
    `finish`, as of `train_translation`, `started` changes the budget. `training` has the figures of the
    training afterwards, such as `updates`, `minutes` and `history`; `report` that of a finished run, else
    None.
    """

    # Settings beside those of `TranslationConfig` that identify a run, and those that may change.
    more_settings: Mapping[str, Any] = {}
    more_changeable: tuple[str, ...] = ()
    scores_translations = True

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
        self.corpus, self.config, self.finish = corpus, config, finish
        self.folder = RunFolder(folder)
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
    def settings(self) -> dict[str, Any]:
        """The settings that identify the run, as `config.json` has them."""
        rows = self.resolved.row_multiple
        return {
            **settings_of(self.corpus, self.config, rows, self.alignments),
            **self.more_settings,
        }

    @property
    def changeable(self) -> tuple[str, ...]:
        """The settings that may differ from those in the folder; all of the budget if the run ends now."""
        ends = BUDGET if self.finish else ()
        return (*self.config.changeable, *ends, *self.more_changeable)

    @functools.cached_property
    def alignments(self) -> WordAlignments | None:
        """The word alignments that a head learns, if there are some."""
        given = self.config.guided_alignment
        return None if given is None else WordAlignments(self.corpus, given)

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
    def peak(self) -> float:
        """FLOP/s of all devices together, measured."""
        return self.resolved.replicas * measured_peak(self.config.dtype)

    def translator(self, model: Any, **options: Any) -> Translator:
        """Return a translator of a model, with the search settings of the run."""
        return Translator(model, self.tokenizer, **{**self.search, **options})

    @property
    def search(self) -> dict[str, Any]:
        """The settings of the search."""
        return {name: getattr(self.config, name) for name in SEARCH_SETTINGS}

    @property
    def chosen(self) -> ChosenCheckpoints:
        """The checkpoints that stand for the run."""
        return ChosenCheckpoints(self.folder, vars(self.config))

    @property
    def test_split(self) -> str:
        """The part of the text that is scored at the end."""
        return "validation" if self.corpus.test is None else "test"

    def sentences(self, split: str, name: str) -> Sentences:
        """Return a part of the text, to translate and score it."""
        sources, references = self.corpus.splits[split].sources(), self.corpus.references(split)
        return Sentences(list(sources), list(references), name, self.corpus.target_language)

    def evaluation(
        self,
        text: Sentences,
        *,
        samples: int = 1000,
        translations_alone: bool = False,
        search: Mapping[str, Any] = {},
    ) -> dict[str, Any]:
        """Evaluate the checkpoints that the run averages, their average, and the best one if it is kept.

        Afterwards the model has the weights that the run ends with. `translations_alone` leaves out the
        cost and the perplexity. `samples` are those of the paired tests. `search` replaces settings of the
        run's search.
        Returns what `evaluation_report` returned.
        """
        cost = None
        if self.batches is not None and not translations_alone:
            last = CHECKPOINT.read(self.chosen.averaged()[-1], verify=False)
            cost = training_cost(
                self.model, self.batches, last["updates"], seconds=last["seconds"], peak=self.peak
            )
        perplexity = None
        if self.validation is not None and not translations_alone:
            perplexity = functools.partial(PerplexityMeter(self.model), self.validation)
        report = evaluation_report(
            self.chosen.systems(self.model, self.resolved.restart),
            self.translator(self.model, **search),
            text,
            measure_perplexity=perplexity,
            cost=cost,
            decoding={**self.search, **search},
            samples=samples,
        )
        return report if self.chosen.best is None else {**report, "best": self.chosen.best}

    # How a run begins.

    def prepare(self) -> None:
        """Make the tokenizer and the token ids, which a start of the run makes first."""
        with self.started():
            if self.report is None:
                _ = self._batches

    def check(self) -> None:
        """Refuse what cannot be trained, in all processes, before anything is written."""
        with failing_together():
            check_event_files()
            if self.scores_translations:
                check_moses()
            self.config = with_budget(self.config, self.folder, self.finish)
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
            why = dict.fromkeys(BUDGET, FOLLOWS_BUDGET)  # where `changeable` lacks it
            self.folder.check(settings, self.changeable, why)
        if self.finish and is_chief():
            steps, minutes = self.config.steps, self.config.minutes
            end = f"{steps:,} updates" if steps else f"{minutes:g} minutes"
            say(f"Finishing: this run ends after {end}. Then come translations and report.")

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        """Check the run, join the devices, and keep the folder from other processes.

        Of several processes, all but the chief are silent within. If the run is finished, it has a `report`.
        """
        check_launch(self.config.strategy)
        with contextlib.ExitStack() as held, contextlib.ExitStack() as self._scope:
            scope = distribution_scope(self.config.strategy, self.config.replicas)
            self.devices = self._scope.enter_context(scope)
            self.check()
            self.report = self.found_report()
            if self.report is None:
                self._claim(held)
            yield

    @property
    def is_chief(self) -> bool:
        """Whether this process does what follows the training; one of several does."""
        return self.devices.process_index == 0

    def leave_processes(self) -> None:
        """Go on alone if several processes trained, with a model that is not shared with the others."""
        if self.devices.num_processes > 1:
            self._scope.close()
            del self.model

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


@functools.cache
def measured_peak(dtype: str) -> float:
    """`matmul_peak`, once in a process, which may train many runs."""
    return matmul_peak(dtype)
