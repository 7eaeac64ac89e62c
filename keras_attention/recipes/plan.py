"""What a run will read and need, before it starts: its text, its batches, and an update that is tried."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.data.corpora import Corpus
from keras_attention.data.filters import FilteredText, describe
from keras_attention.data.mixed_batches import MixedBatches
from keras_attention.data.mixture import parse_mixture
from keras_attention.evaluation.cost import training_flops
from keras_attention.recipes.catalog import forecast_for
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.run import Run
from keras_attention.training.distribution import accelerator_peak_bytes, has_accelerator
from keras_attention.utils.arguments import checked
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.forecast import Forecast
from keras_attention.utils.progress import activity

# Linux' figures of a process, with its peak of memory, and the file where a 5 begins a new peak.
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "ResourceExhausted", "OutOfMemory", "out of memory", "OOM")
FLOPS_WITHOUT_ACCELERATOR = 5e11  # some ten seconds on two CPU cores


@dataclasses.dataclass(frozen=True)
class StepProbe:
    """What an update takes: seconds until it is compiled, and of the next one; peak memory.

    The memory is that of the accelerator or, without one, of the process, as `device` says; None if unknown.
    """

    first_seconds: float
    seconds: float
    peak_bytes: int | None
    device: str

    def __str__(self) -> str:
        memory = "unknown" if self.peak_bytes is None else f"{self.peak_bytes / 2**30:.2f} GiB"
        return (
            f"{self.seconds:.2f} s per update ({self.first_seconds:.1f} s the first time); at most {memory} "
            f"of the {self.device}'s memory"
        )


def worth_trying(flops: float) -> bool:
    """Whether an update takes only seconds: on an accelerator, or a small one."""
    return has_accelerator() or flops < FLOPS_WITHOUT_ACCELERATOR


def probe_step(model: keras.Model, rows: int, source_length: int, target_length: int) -> StepProbe:
    """Train a compiled translation model for a few updates on random sentences that fill a batch (B, S, T).

    The updates change the model, so do not pass one that you want to keep. A MemoryError says that none fits.
    """
    random = np.random.default_rng(0)
    source = random.integers(3, model.vocabulary_size, (rows, source_length), "int32")
    target = random.integers(3, model.target_vocabulary_size, (rows, target_length), "int32")
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
    seconds = []
    with contextlib.suppress(OSError):
        CLEAR_REFS.write_text("5")
    for _ in range(getattr(model, "slow_batches", 1) + 1):
        started = time.perf_counter()
        try:
            model.train_on_batch(inputs, target)  # returns numbers: it waits for the device
        except Exception as error:
            _explain(error, (rows, source_length, target_length))
            raise
        seconds.append(time.perf_counter() - started)
    *first, last = seconds
    on_device = accelerator_peak_bytes() if has_accelerator() else None
    if on_device is not None:
        return StepProbe(sum(first), last, on_device, "accelerator")
    return StepProbe(sum(first), last, _process_peak(), "process")


def _explain(error: Exception, shape: tuple[int, int, int]) -> None:
    """Raise a MemoryError if this is a backend's error for missing memory."""
    text = f"{type(error).__name__} {error}"
    if any(sign in text for sign in OUT_OF_MEMORY):
        raise MemoryError(
            f"An update on (rows, source, target) = {shape} ran out of memory. Lower "
            "--batch-tokens, or raise --accumulation-steps or --replicas."
        ) from error


def _process_peak() -> int | None:
    """Return the most bytes that this process had in memory at a time; None where it is not Linux."""
    found = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text() if STATUS.exists() else "")
    return None if found is None else 1024 * int(found[1])


@dataclasses.dataclass(frozen=True)
class Plan:
    """The figures of a planned run; `print` shows them, `as_dict` gives them for JSON.

    Attributes:
        corpus: Its name.
        preset: Name of the model's preset.
        filters: Report of the filters (see `FilteredText.report`), or None if there are none.
        pairs: Pairs in an epoch.
        dropped_empty: Pairs with a side without tokens.
        dropped_long: Pairs with too many tokens on a side.
        vocabulary_size: V of the model.
        parameters: Number of its parameters.
        source_tokens: Tokens of the source in an epoch, with end tokens and without padding.
        target_tokens: Those of the target.
        batches: Updates in an epoch.
        padding: Share of padding in all positions of an epoch.
        shapes: The batches of each shape; see `TokenBatches.shape_statistics`.
        mixture: The stages of a mixture: the `shares` of its parts and the update `until` which it holds;
            None without one.
        passes: Batches in a pass over each part of a mixture.
        replicas: Number of parts of a batch that are computed at the same time.
        accumulation_steps: Number of parts that are computed one after the other.
        largest: (B, S, T) of the largest batch, as far as one replica computes it.
        trial: Time and memory of an update on it, or None if none was tried.
        forecast: What the budget comes to, at the speed of the trial.
        seconds: Time that planning took.
    """

    corpus: str
    preset: str
    filters: dict[str, Any] | None
    pairs: int
    dropped_empty: int
    dropped_long: int
    vocabulary_size: int
    parameters: int
    source_tokens: int
    target_tokens: int
    batches: int
    padding: float
    shapes: list[dict[str, Any]]
    mixture: list[dict[str, Any]] | None
    passes: dict[str, int]
    replicas: int
    accumulation_steps: int
    largest: tuple[int, int, int]
    trial: StepProbe | None
    forecast: Forecast
    seconds: float

    @property
    def tokens_per_update(self) -> tuple[float, float]:
        """Source and target tokens of an update, on average."""
        return self.source_tokens / self.batches, self.target_tokens / self.batches

    @property
    def tokens_per_replica(self) -> tuple[float, float]:
        """Source and target tokens that a replica computes of an update, on average."""
        source, target = self.tokens_per_update
        return source / self.replicas, target / self.replicas

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        derived = {
            name: getattr(self, name) for name in ("tokens_per_update", "tokens_per_replica")
        }
        forecast = {"updates_in_time": self.forecast.updates_in_time}
        return dataclasses.asdict(self) | derived | forecast

    def __str__(self) -> str:
        lines = [*self._data_lines(), *self._mixture_lines(), *self._shape_lines()]
        return "\n".join([*lines, *self._trial_lines()])

    def _data_lines(self) -> list[str]:
        source, target = self.tokens_per_update
        parts = self.tokens_per_replica
        filters = "none" if self.filters is None else describe(self.filters)
        shared = ""
        if self.replicas * self.accumulation_steps > 1:
            shared = (
                f"; {parts[0]:,.0f} and {parts[1]:,.0f} on each of {self.replicas} replica(s), in "
                f"{self.accumulation_steps} step(s)"
            )
        return [
            f"Plan: {self.preset} model, {self.parameters:,} parameters, "
            f"{self.vocabulary_size:,} word-pieces, on {self.corpus}",
            f"Filters: {filters}",
            f"Pairs: {self.pairs:,} an epoch; left out as well: {self.dropped_empty:,} without "
            f"tokens, {self.dropped_long:,} with too many tokens",
            f"Tokens: {self.source_tokens:,} source, {self.target_tokens:,} target an epoch",
            f"Updates: {self.batches:,} an epoch, on average {source:,.0f} source and "
            f"{target:,.0f} target tokens{shared}",
        ]

    def _mixture_lines(self) -> list[str]:
        if self.mixture is None:
            return []
        passes = ", ".join(f"{name} {count:,}" for name, count in self.passes.items())
        lines = [
            f"Mixture: a pass takes {passes} updates; a part that is used up begins its next pass"
        ]
        start = 1
        for stage in self.mixture:
            end = "the end" if stage["until"] is None else f"{stage['until']:,}"
            shares = ", ".join(f"{name} {share:.1%}" for name, share in stage["shares"].items())
            lines.append(f"  updates {start:,} to {end}: {shares}")
            start = (stage["until"] or 0) + 1
        return lines

    def _shape_lines(self) -> list[str]:
        lines = [
            f"Batch shapes: {len(self.shapes)}; {self.padding:.1%} padding",
            f"  {'rows':>6} {'source':>6} {'target':>6} {'batches':>8} {'pairs':>11} {'padding':>8}",
        ]
        for shape in self.shapes:
            rows, source, target = shape["shape"]
            lines.append(
                f"  {rows:>6,} {source:>6} {target:>6} {shape['batches']:>8,} "
                f"{shape['pairs']:>11,} {shape['padding']:>8.1%}"
            )
        return lines

    def _trial_lines(self) -> list[str]:
        rows, source, target = self.largest
        tried = "nothing was tried; --plan-try measures the time and memory of an update on it"
        return [
            f"Largest batch{' of a replica' * (self.replicas > 1)}: {rows} x {source} source, {rows} x "
            f"{target} target",
            f"  {tried if self.trial is None else f'tried: {self.trial}'}",
            str(self.forecast),
            *filter(None, [self.forecast.advice]),
            f"Planned in {self.seconds:.0f} s",
        ]


@checked
def plan_training(
    corpus: Corpus,
    config: TranslationConfig,
    folder: Path | None = None,
    try_longest: bool | None = None,
) -> Plan:
    """Find out what a run will read and need, without training.

    The tokenizer and the token store are made as in a run, so the figures are those of its batches. They
    are kept for the next time.

    Args:
        corpus: What to train on.
        config: The settings.
        folder: The folder for tokenizer and store; by default a folder in the cache of downloads.
        try_longest: Whether to try an update on the largest batch. By default (None), one is tried if it
            takes only seconds.

    Returns:
        A `Plan`.

    >>> import dataclasses, tempfile
    >>> from keras_attention.data import load_corpus
    >>> from keras_attention.recipes import RECIPES
    >>> plan = plan_training(load_corpus("demo"), RECIPES["demo"], Path(tempfile.mkdtemp()), False)
    >>> plan.pairs, sum(shape["pairs"] for shape in plan.shapes)
    (10000, 10000)
    """
    started = time.monotonic()
    run = Run(corpus, config, folder or "plan")
    if folder is None:  # Nothing is written into the folder of a run that is only planned.
        run.shared = _plan_folder(run)
    run.resolved.check(corpus.train)
    _ = run.alignments  # Wrong ones are refused before the tokenizer is trained.
    stages = parse_mixture(config.mixture, corpus.parts)
    batches = run.batches
    statistics, shapes = batches.statistics(), batches.shape_statistics()
    replicas = run.resolved.replicas
    flops = {shape["shape"]: training_flops(run.model, [shape["shape"]]) for shape in shapes}
    largest = max(flops, key=lambda shape: (flops[shape], shape))
    part = (largest[0] // replicas, *largest[1:])
    forecast, trial = forecast_for(config, corpus, len(batches)), None
    if try_longest or (try_longest is None and worth_trying(flops[largest] // replicas)):
        with activity("trying an update on the largest batch"):
            trial = probe_step(run.model, *part)
        mean = sum(shape["batches"] * flops[shape["shape"]] for shape in shapes) / len(batches)
        seconds = trial.seconds * mean / flops[largest]
        forecast = dataclasses.replace(
            forecast, seconds=seconds, source="as an update that was tried"
        )
    return Plan(
        corpus=corpus.name,
        preset=config.preset if run.resolved.start is None else "pretrained",
        filters=corpus.train.report() if isinstance(corpus.train, FilteredText) else None,
        pairs=statistics["pairs"],
        dropped_empty=batches.store.metadata["dropped_empty"],
        dropped_long=statistics["dropped_long"],
        vocabulary_size=run.tokenizer.vocabulary_size,
        parameters=run.model.count_params(),
        source_tokens=statistics["source_tokens"],
        target_tokens=statistics["target_tokens"],
        batches=statistics["batches"],
        padding=statistics["padding"],
        shapes=shapes,
        mixture=[dataclasses.asdict(stage) for stage in stages] or None,
        passes=batches.passes if isinstance(batches, MixedBatches) else {},
        replicas=replicas,
        accumulation_steps=config.accumulation_steps,
        largest=part,
        trial=trial,
        forecast=forecast,
        seconds=time.monotonic() - started,
    )


def _plan_folder(run: Run) -> Path:
    """Where tokenizer and store of a plan are kept for the next one."""
    corpus, config, start = run.corpus, run.config, run.resolved.start
    name = (
        f"{corpus.train.fingerprint()[:16]}-{config.tokenizer_algorithm}-{config.vocabulary_size}"
    )
    tags = [*corpus.symbols, *config.symbols, config.source_prefix]
    if start is not None:  # whose tokenizer it is, for languages of the corpus
        tags += [start.fingerprint(), corpus.source_language, corpus.target_language]
    if any(tags):
        name += f"-{hashlib.sha256(repr(tags).encode()).hexdigest()[:16]}"
    return cache_folder("plans") / name
