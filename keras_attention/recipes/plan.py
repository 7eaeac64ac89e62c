"""What a run will read, compute and need, before it starts: the option `--plan`."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from pathlib import Path
from typing import Any

from keras_attention.data.corpora import Corpus
from keras_attention.data.filters import FilteredText, describe
from keras_attention.data.mixed_batches import MixedBatches
from keras_attention.data.mixture import parse_mixture
from keras_attention.evaluation.cost import ModelSizes, paper_training_cost, training_flops
from keras_attention.evaluation.memory import TrainingMemory, training_memory
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.forecast import Forecast
from keras_attention.recipes.prepare import Resolved
from keras_attention.recipes.probe_step import StepProbe, probe_step, worth_trying
from keras_attention.recipes.run import Run
from keras_attention.recipes.start import model_arguments
from keras_attention.spec.presets import PRESETS
from keras_attention.utils.cache import cache_folder
from keras_attention.utils.checks import check_boolean, check_path
from keras_attention.utils.progress import activity

# Seconds for an update on the paper's eight P100 (section 5.2).
PAPER_SECONDS = {"base": 0.4, "big": 1.0, "big_en_fr": 1.0}


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
        steps: Updates in the budget, or None if only the time is limited.
        minutes: Minutes in the budget, or None if only the updates are limited.
        advised: Updates that the recipe for this much text has.
        flops: Counted FLOPs of an epoch, padding included.
        paper_cost: Cost of this many updates as Table 2 counts it, or None if the paper did not time
            this model.
        largest_part: (B, S, T) of the part of a batch that takes most memory on a device.
        part_flops: Counted FLOPs of training on that part.
        memory: Estimated memory for that part.
        trial: Time and memory of a trial step on that part, or None.
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
    steps: int | None
    minutes: float | None
    advised: int
    flops: int
    paper_cost: float | None
    largest_part: tuple[int, int, int]
    part_flops: int
    memory: TrainingMemory
    trial: StepProbe | None
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

    @property
    def updates_in_time(self) -> float | None:
        """Updates that fit into the minutes at the speed of the trial; None without minutes or trial."""
        return self.forecast.updates_in_time

    @property
    def forecast(self) -> Forecast:
        """What the budget comes to, at the speed of the trial."""
        seconds = None
        if self.trial is not None:
            update_flops = self.flops / self.batches / self.replicas
            seconds = self.trial.seconds * update_flops / self.part_flops
        source = "as a step that was tried"
        return Forecast(
            self.steps, self.minutes, self.batches, self.advised, seconds=seconds, source=source
        )

    @property
    def epochs(self) -> float | None:
        """Epochs that the steps make."""
        return None if self.steps is None else self.steps / self.batches

    @property
    def total_flops(self) -> float | None:
        """Counted FLOPs of all steps."""
        return None if self.epochs is None else self.flops * self.epochs

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        derived = (
            "tokens_per_update", "tokens_per_replica", "updates_in_time", "epochs", "total_flops",
        )  # fmt: skip
        figures = dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}
        figures["memory"]["total"] = self.memory.total
        return figures

    def __str__(self) -> str:
        lines = [*self._data_lines(), *self._mixture_lines(), *self._shape_lines()]
        return "\n".join([*lines, *self._cost_lines()])

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

    def _cost_lines(self) -> list[str]:
        lines = [str(self.forecast)]
        if self.trial is None:
            lines[0] += " To know it now, try a step with --plan-try."
        if self.forecast.advice:
            lines.append(self.forecast.advice)
        total = "" if self.total_flops is None else f", {self.total_flops:.3g} in all"
        lines.append(
            f"Cost: {self.flops:.3g} FLOPs counted per epoch, {self.flops / self.batches:.3g} per "
            f"update{total}"
        )
        if self.paper_cost is not None:
            lines.append(
                f"  as in Table 2, time on 8 P100 at 9.5 TFLOPS: {self.paper_cost:.3g} "
                f"({PAPER_SECONDS[self.preset]} s per update, section 5.2)"
            )
        rows, source, target = self.largest_part
        lines += [
            f"Largest part on a device: {rows} x {source} source, {rows} x {target} target",
            f"  memory: {self.memory}",
        ]
        if self.trial is None:
            lines.append(
                "  not tried: it would take minutes and much memory here (--plan-try tries it)"
            )
        else:
            lines.append(f"  tried: {self.trial}")
        lines.append(f"Planned in {self.seconds:.0f} s")
        return lines


def plan_training(
    corpus: Corpus,
    config: TranslationConfig,
    folder: Path | None = None,
    try_longest: bool | None = None,
) -> Plan:
    """Find out what a run will read, compute and need, without training.

    The tokenizer and the token store are made as in a run, so the figures are those of its batches. They
    are kept for the next time.

    Args:
        corpus: What to train on.
        config: The settings.
        folder: The folder for tokenizer and store; by default a folder in the cache of downloads.
        try_longest: Whether to run one training step on the largest part of a batch. By default (None),
            a step runs if it takes only seconds.

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
    if try_longest is not None:
        check_boolean("try_longest", try_longest)
    run = Run(corpus, config, "plan" if folder is None else check_path("folder", folder))
    if folder is None:  # Nothing is written into the folder of a run that is only planned.
        run.shared = _plan_folder(corpus, config)
    run.resolved.check(corpus.train)
    _ = run.alignments  # Wrong ones are refused before the tokenizer is trained.
    stages = parse_mixture(config.mixture, corpus.parts)
    batches = run.batches
    statistics, shapes = batches.statistics(), batches.shape_statistics()
    start = run.resolved.start
    name = config.preset if start is None else "pretrained"
    vocabulary = {"vocabulary_size": run.tokenizer.vocabulary_size}
    arguments = {**PRESETS[name], **vocabulary} if start is None else start.spec.options()
    sizes = ModelSizes.of({**arguments, **model_arguments(config), "recompute": config.recompute})
    part, memory = _largest_part(sizes, shapes, run.resolved)
    part_flops = training_flops(sizes, [part])
    trial = None
    if try_longest or (try_longest is None and worth_trying(part_flops, memory)):
        with activity("trying a step on the largest batch"):
            trial = probe_step(run.model, *part)
    seconds = PAPER_SECONDS.get(name)
    return Plan(
        corpus=corpus.name,
        preset=name,
        filters=corpus.train.report() if isinstance(corpus.train, FilteredText) else None,
        pairs=statistics["pairs"],
        dropped_empty=batches.store.metadata["dropped_empty"],
        dropped_long=statistics["dropped_long"],
        vocabulary_size=run.tokenizer.vocabulary_size,
        parameters=sizes.parameters,
        source_tokens=statistics["source_tokens"],
        target_tokens=statistics["target_tokens"],
        batches=statistics["batches"],
        padding=statistics["padding"],
        shapes=shapes,
        mixture=[dataclasses.asdict(stage) for stage in stages] or None,
        passes=batches.passes if isinstance(batches, MixedBatches) else {},
        replicas=run.resolved.replicas,
        accumulation_steps=config.accumulation_steps,
        steps=config.steps,
        minutes=config.minutes,
        advised=Forecast.of(config, corpus, len(batches)).advised,
        flops=sum(shape["batches"] * training_flops(sizes, [shape["shape"]]) for shape in shapes),
        paper_cost=paper_training_cost(config.steps * seconds)
        if config.steps and seconds
        else None,
        largest_part=part,
        part_flops=part_flops,
        memory=memory,
        trial=trial,
        seconds=time.monotonic() - started,
    )


def _plan_folder(corpus: Corpus, config: TranslationConfig) -> Path:
    """Where tokenizer and store of a plan are kept for the next one."""
    name = (
        f"{corpus.train.fingerprint()[:16]}-{config.tokenizer_algorithm}-{config.vocabulary_size}"
    )
    tags = [*corpus.symbols, *config.symbols, config.source_prefix]
    if any(tags):
        name += f"-{hashlib.sha256(repr(tags).encode()).hexdigest()[:16]}"
    return cache_folder("plans") / name


def _largest_part(
    sizes: ModelSizes, shapes: list[dict[str, Any]], resolved: Resolved
) -> tuple[tuple[int, int, int], TrainingMemory]:
    """Return the part of the largest batch that a device computes at once: (B, S, T), and its memory."""
    config = resolved.config
    found: dict[tuple[int, int, int], TrainingMemory] = {}
    for shape in shapes:
        rows, source, target = shape["shape"]
        part = -(-rows // resolved.parts), source, target
        found[part] = training_memory(sizes, *part, config.dtype, config.accumulation_steps > 1)
    return max(found.items(), key=lambda item: (item[1].total, item[0]))
