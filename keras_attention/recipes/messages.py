"""The messages of a run: what it will do, what it left out, how it ended, and what to do next."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.filters import FilteredText, describe
from keras_attention.data.formats.common import Loaded
from keras_attention.data.model_card import other_direction
from keras_attention.evaluation.report_text import alignment_text, trained_text
from keras_attention.ops.dispatch import backend_choice
from keras_attention.recipes.config import TranslationConfig
from keras_attention.utils.run_folder import RunFolder

# Below this BLEU nobody would call the output a translation.
LEAST_BLEU = 2.0
# If the best validation perplexity is below this share of the last one, the rise is not noise: overfitting.
LEARNED_BY_HEART = 0.9


def corpus_text(corpus: Corpus, start: Loaded | None = None) -> str:
    """Return the corpus, the sizes of its parts, and a warning if a pretrained model has other languages."""
    sizes = ", ".join(f"{name} {len(text):,} pairs" for name, text in corpus.splits.items())
    lines = [f"Corpus {corpus.name}: {corpus.description}", f"  {sizes}"]
    for name, counts in corpus.also_trained.items():
        if counts["trained"]:
            lines.append(f"Warning: {trained_text(name, counts)} also in the training text.")
    if isinstance(corpus.train, FilteredText):
        lines.append(f"  Filters: {describe(corpus.train.report())}")
    languages = (corpus.source_language, corpus.target_language)
    if start is not None and (warning := other_direction(start.card, languages)):
        lines.append(f"Warning: {warning}")
    return "\n".join(lines)


def batches_text(batches: TokenBatches) -> str:
    """Return the batches of an epoch, and how many pairs are left out."""
    statistics = batches.statistics()
    empty, long = batches.store.metadata["dropped_empty"], statistics["dropped_long"]
    left_out = "no pair"
    if empty or long:
        left_out = (
            f"{empty:,} pairs without tokens, {long:,} with over {batches.max_length} on a side"
        )
    return (
        f"Batches: {statistics['batches']:,} an epoch, on average "
        f"{statistics['source_tokens_per_batch']:,.0f} source and "
        f"{statistics['target_tokens_per_batch']:,.0f} target tokens, "
        f"{statistics['padding']:.1%} padding, {len(statistics['shapes'])} shapes; "
        f"left out: {left_out}"
    )


def model_text(model: Any, config: TranslationConfig, batches: TokenBatches) -> str:
    """Return the model and what it is trained on."""
    name = config.preset
    if config.start_from is not None:
        frozen = f", {config.freeze} frozen" if config.freeze else ""
        frozen += f", all frozen but LoRA of rank {config.lora}" if config.lora else ""
        rates = f"dropout {model.dropout:g}, label smoothing {config.label_smoothing:g}"
        share = f"{config.start_share:.0%} of its weights kept at the end"
        name = (
            f"of '{config.start_from}'{frozen}, {rates}{f', {share}' if config.start_share else ''}"
        )
    compiles = backend_choice("A message", torch="", default=" compiles first, which")
    count = model.count_params()
    size = f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"
    first, does = ("batch", "does") if model.slow_batches == 1 else ("two batches", "do")
    return (
        f"Model {name}, {config.dtype}: {size} parameters, trained on "
        f"{batches.statistics()['pairs']:,} pairs an epoch. The first {first} of each of the "
        f"{len(batches.shape_statistics())} shapes{compiles} {does} not count as training."
    )


def device_text(count: int, kind: str, config: TranslationConfig) -> str:
    """Return what a run computes on, and what of it could be used better.

    >>> device_text(1, "cpu", TranslationConfig(steps=1, strategy="mirrored"))
    "Device: 1 CPU. The strategy 'mirrored' found no other to share a batch with."
    """
    told = ""
    if config.strategy is not None and count == 1:
        told = f" The strategy {config.strategy!r} found no other to share a batch with."
    is_plain = not config.jit_compile and backend_choice("A message", torch=True, default=False)
    if kind == "gpu" and is_plain:
        told += (
            " With --jit-compile updates take less time, after a minute for each shape of a batch."
        )
    return f"Device: {count} {kind.upper()}.{told}"


def finished_text(folder: RunFolder, report: Mapping[str, Any], can_go_on: bool) -> str:
    """Return what is said when a finished run is started again: how to continue it, or why it cannot be."""
    finished = (
        f"This run is finished, after {report['training']['updates']:,} updates; its report is "
        f"{folder.report_text}."
    )
    return f"{finished} {_how_to_go_on(report, can_go_on)}"


def _how_to_go_on(report: Mapping[str, Any], can_go_on: bool) -> str:
    settings = report["config"]
    names = [name for name in ("steps", "minutes") if settings[name] is not None]
    budget = " or ".join(f"--{name} (it had {settings[name]:,})" for name in names)
    if report["training"]["patience_is_over"] and _ended_early(report):
        return (
            f"The validation {spoken_measure(settings['best_by'])} did not improve for "
            f"{settings['patience']} epochs. To continue anyway, run the same command with a higher "
            "--patience."
        )
    if can_go_on:
        again = " It goes on from where the learning rate began to fall."
        return (
            f"To continue it, run the same command with a higher {budget}."
            f"{again if settings['cooldown'] else ''}"
        )
    return (
        "Its learning rate followed its budget to the end, so it cannot continue. To train longer, start a "
        f"new run in another --output-dir, with a higher {budget}, or with --cooldown 0.2, which can "
        "continue."
    )


def spoken_measure(best_by: str | None) -> str:
    """Return the name of what tells the best checkpoint, for messages."""
    return {"bleu": "BLEU", "chrf": "chrF"}.get(best_by or "", "perplexity")


def _ended_early(report: Mapping[str, Any]) -> bool:
    settings, training = report["config"], report["training"]
    return (settings["steps"] is None or training["updates"] < settings["steps"]) and (
        settings["minutes"] is None or training["training_minutes"] < settings["minutes"] - 0.01
    )


def results_text(folder: RunFolder, report: Mapping[str, Any], can_go_on: bool = True) -> str:
    """Return the end of a run: a line of numbers, some translations, where things are and what to do next."""
    lines, test = [*_scores(report), ""], report["test"]
    for example in test["examples"]:
        lines += [f"  {name:>11}  {text}" for name, text in example.items()]
        lines.append("")
    name, page = shlex.quote(str(folder.path)), folder.attention
    sentence = shlex.quote(test["examples"][0]["source"]) if test["examples"] else '"..."'
    lines += [
        f"The run is in {name}: the model in {folder.model.name}, all figures in "
        f"{folder.report_text.name} and {folder.report.name}, all translations in "
        f"{folder.translations.name}.",
        _how_to_go_on(report, can_go_on),
        f"  echo {sentence} | {_command('keras-attention')} translate {name}",
        f"  {_command('keras-attention')} attention {name} {sentence} --output {name}-attention",
        f"  {_command('tensorboard')} --logdir {name}",
        *([f"Where its heads look: {page.resolve().as_uri()}"] if page.is_file() else []),
    ]
    return "\n".join(lines)


def _scores(report: Mapping[str, Any]) -> list[str]:
    """Return how good the result is, what training or averaging has harmed, and why nothing was learned."""
    test, training = report["test"], report["training"]
    synthetic = " (synthetic data)" if report["synthetic"] else ""
    averaged = training["averaged_checkpoints"]
    weights = f"the average of {averaged} checkpoints" if averaged > 1 else "the last checkpoint"
    if report["config"]["ema"] is not None:
        weights = "the moving average of the weights"
    best, share = training.get("best_checkpoint"), report["config"].get("start_share")
    if best is not None and best["is_final"]:
        weights = f"the best checkpoint by {spoken_measure(best['by'])}, {best['name']}"
        if is_untrained(best):
            weights, share = "the pretrained model, unchanged", 0
    if share:
        weights += f", with {share:.0%} of the pretrained weights"
    lines = [
        f"BLEU {test['bleu']:.2f}, chrF {test['chrf']:.2f} on {test['sentences']:,} {test['split']} "
        f"pairs{synthetic}; validation perplexity {report['validation_perplexity']:.3f}; "
        f"{training['updates']:,} updates in {training['training_minutes']:.1f} minutes of training "
        f"({training['minutes']:.1f} with first batches and validation), {weights}"
    ]
    for name, split in (
        ("the old domain", report.get("old_domain")),
        (f"the {test['split']} pairs", test),
    ):
        if split is not None and "before" in split:
            lines.append(
                f"Before training, BLEU on {name} was {split['before']['bleu']:.2f}; it is "
                f"{split['bleu']:.2f} now (p = {split['p_value']:.4f})."
            )
    if "alignment" in report:
        lines.append(f"The alignment error rate is {alignment_text(report['alignment'])}.")
    if harm := what_training_harmed(report):
        lines.append(harm)
    last, mean = report["last_validation_perplexity"], report["validation_perplexity"]
    if last < mean and not share and not (best or {}).get("is_final"):
        remedy = "use --average 1 to take only the last one."
        if report["config"]["ema"] is not None:
            remedy = "leave out --ema."
        lines.append(
            f"Averaging did not help this run: the last checkpoint alone has a validation perplexity of "
            f"{last:.3f}. In a run as short as this, {remedy}"
        )
    if reason := why_nothing_was_learned(report):
        lines.append(reason)
    return lines


def what_training_harmed(report: Mapping[str, Any]) -> str:
    """Return a warning if a pretrained model was better before it was trained, or an empty text."""
    before, after = (report.get(f"{name}_validation_perplexity") for name in ("first", "last"))
    best = report["training"].get("best_checkpoint")
    remedy = "Try a lower --peak-learning-rate, or more text."
    if before is None:
        return ""
    if best is not None and best["is_final"]:
        if not is_untrained(best):
            return ""
        measure = spoken_measure(best["by"])
        return (
            f"Training has not made this model better: no checkpoint has a better validation {measure} than "
            f"the pretrained model ({best['value']:.3f}), so this is the result, unchanged. The perplexity "
            f"was {before:.3f} before the first update and {after:.3f} after the last one. {remedy}"
        )
    if report["validation_perplexity"] <= before:
        return ""
    return (
        f"Training has harmed this model: the validation perplexity was {before:.3f} before the first update "
        f"and is {report['validation_perplexity']:.3f} now. With --best-by perplexity --final-model best, a "
        f"run ends with the best weights, if need be with those of the pretrained model. {remedy}"
    )


def is_untrained(best: Mapping[str, Any]) -> bool:
    """Whether the best checkpoint is from before the first update: the pretrained model."""
    return int(best["name"].rpartition("-")[2]) == 0


def why_nothing_was_learned(report: Mapping[str, Any]) -> str:
    """Return an explanation for a run that did not learn to translate, or an empty text."""
    if report["test"]["bleu"] >= LEAST_BLEU:
        return ""
    training, settings = report["training"], report["config"]
    updates, warmup = training["updates"], settings["warmup_steps"]
    if updates <= 2 * warmup:
        over = "is not over" if updates < warmup else "is hardly over"
        return (
            f"This run did not learn to translate: after {updates:,} updates, the warm-up of the learning "
            f"rate ({warmup:,} updates) {over}. Give it more --steps or --minutes."
        )
    batches = report["batches"]["batches"]
    perplexities = [epoch.get("val_perplexity", math.inf) for epoch in training["history"]]
    best = min(perplexities, default=math.inf)
    if best < LEARNED_BY_HEART * perplexities[-1]:
        return (
            "This run learned its training text by heart (overfitting): after epoch "
            f"{training['history'][perplexities.index(best)]['epoch']} the validation perplexity rose "
            f"from {best:.1f} to {perplexities[-1]:.1f}. More text helps most; a smaller model or more "
            "--dropout may help."
        )
    return (
        f"This run did not learn to translate in {updates:,} updates ({updates / batches:,.1f} epochs). "
        "Give it more --steps, more text, or another --peak-learning-rate. Also check that the two sides "
        "of the text are translations of each other, line by line."
    )


def _command(name: str) -> str:
    """How to type a program of this Python's environment here, whether the environment is active or not."""
    installed = Path(sys.executable).with_name(name)
    if not installed.exists():
        module = {"keras-attention": "keras_attention_light", "tensorboard": "tensorboard.main"}[
            name
        ]
        return f"{shlex.quote(_as_typed(Path(sys.executable)))} -m {module}"
    found = shutil.which(name)
    if found is not None and installed.samefile(found):
        return name
    return shlex.quote(_as_typed(installed))


def _as_typed(path: Path) -> str:
    """Return a path, relative to the current folder if it is inside."""
    return os.fspath(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
