"""The runs of `weighted_transformer.py`: a run whose model has branches, and a log of their weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_attention import Adam, SimplexLearningRate, WeightedTransformer
from keras_attention.callbacks.base import RunCallback, updates_of
from keras_attention.callbacks.metrics_log import MetricsLog
from keras_attention.data.corpora import Corpus
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import Run

WEIGHTS = ("kappa", "alpha")


class WeightedRun(Run):
    """A run of training of a Weighted Transformer; `branches.jsonl` in its folder has kappa and alpha.

    As in the paper, the warmup of kappa and alpha takes a tenth of the model's, and they are frozen in the
    last sixth of the updates.

    Args:
        corpus, config, folder, shared: As of `Run`.
        branches: Options of `WeightedTransformer`, beside those of the config.
        figures: What the log has of the model; by default `branch_weights`.
    """

    kind: type[WeightedTransformer] = WeightedTransformer

    def __init__(
        self,
        corpus: Corpus,
        config: TranslationConfig,
        folder: Path,
        branches: Mapping[str, str],
        shared: Path | None = None,
        figures: Callable[[Any], dict[str, Any]] | None = None,
    ):
        log = BranchLog(MetricsLog(branch_file(folder)), figures=figures)
        super().__init__(corpus, config, folder, shared=shared, callbacks=[log])
        self.branches = branches

    @functools.cached_property
    def model(self) -> WeightedTransformer:
        """The model, compiled for training: what the config says, with branches."""
        config, plain = self.config, self.resolved.model(self.tokenizer.vocabulary_size)
        rate = SimplexLearningRate(
            plain.hidden_dim,
            plain.num_layers,
            warmup_steps=max(1, config.warmup_steps // 10),
            last_step=None if config.steps is None else config.steps - config.steps // 6,
        )
        model = self.kind(**{**plain.get_config(), **self.branches})
        model.compile(
            Adam.from_config({**plain.optimizer.get_config(), "simplex_learning_rate": rate}),
            plain.loss,
            accumulation_steps=config.accumulation_steps,
        )
        return model


def branch_file(folder: Path) -> Path:
    """Return where a run's folder has the log of its branches."""
    return folder / "branches.jsonl"


class BranchLog(RunCallback):
    """Logs figures of a model every few updates; by default `branch_weights`.

    An entry has the number of the update and the figures. A resumed run removes the entries of updates
    that it repeats.
    """

    def __init__(
        self,
        log: MetricsLog,
        every: int = 50,
        figures: Callable[[Any], dict[str, Any]] | None = None,
    ):
        super().__init__()
        self.log = log
        self.every = every
        self.figures = figures or branch_weights

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._updates = updates_of(self.model)
        self.log.keep_until(self._updates)
        self._written = max((entry["update"] for entry in self.log.read()), default=-1)
        self._write_if_due()

    def before_update(self, batch: int) -> None:
        self._write_if_due()
        self._updates += 1

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._write_if_due()

    def _write_if_due(self) -> None:
        if self._updates > self._written and self._updates % self.every == 0:
            self._written = self._updates
            self.log.write({"update": self._updates, **self.figures(self.model)})


def branch_weights(model: Any) -> dict[str, list[float]]:
    """Return kappa and alpha of a model by name, `"BLOCK/ATTENTION/NAME"`; {} for a plain model."""
    return {
        "/".join(weight.path.split("/")[-3:]): keras.ops.convert_to_numpy(weight).tolist()
        for weight in model.weights
        if weight.path.rpartition("/")[2] in WEIGHTS
    }
