"""Train a Transformer to translate, and report how well it does (sections 5 and 6.1 of the paper)."""

import dataclasses
import importlib.metadata
import os
import platform
from typing import Any

import keras

from keras_attention.callbacks.checkpoints import Checkpoints
from keras_attention.data.corpora import Corpus
from keras_attention.evaluation.cost import matmul_peak
from keras_attention.evaluation.report import write_report
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.config import BUDGET, RESUMABLE_FIELDS, TranslationConfig
from keras_attention.recipes.evaluate import evaluate_run
from keras_attention.recipes.messages import batches_text, corpus_text, forecast, results_text
from keras_attention.recipes.prepare import (
    check_model,
    compiled_model,
    prepared_batches,
    prepared_tokenizer,
    replica_count,
    row_multiple,
)
from keras_attention.recipes.train import average_last, train_to_budget
from keras_attention.training.distribution import distribution_scope
from keras_attention.utils.files import atomic_path, write_atomically
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import RunFolder
from keras_attention.visualization.summary_writer import SummaryWriter


def train_translation(
    corpus: Corpus, config: TranslationConfig, output_dir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Train on a corpus, translate its test set, score it; everything lands in one folder.

    The folder gets `config.json`, `tokenizer/`, `store/` (token ids), `checkpoints/`, `logs/` (for
    TensorBoard), `averaged/` and `model.keras` (both the average), `translations.txt` and
    `report.json`. Started again with the same arguments, a run that was stopped or killed goes on from
    its last checkpoint as if nothing had happened, and a finished one returns its report. `RESUMABLE_FIELDS`
    settings may change between two starts: a finished run trains on when its budget is raised.

    Args:
        corpus: What to train on; without a test part, the validation part is translated.
        config: The settings.
        output_dir: The run's folder.

    Returns:
        The report: every figure that was printed.

    Raises:
        ValueError: If no model can be made of the settings, the folder belongs to another
            configuration or corpus, or another process works on it.
        TrainingStopped: A `KeyboardInterrupt`: after Ctrl-C or SIGTERM; the run can be resumed.
        OSError: If a checkpoint cannot be written, for instance because the disk is full.
    """
    check_model(config)
    settings = _settings(corpus, config)
    folder = RunFolder(output_dir)
    folder.check(settings, _changeable(config))
    report = folder.finished_report()
    if report is not None and all(report["config"][name] == settings[name] for name in BUDGET):
        say(f"This run is finished; its report is {folder.report_text}")
        return report
    with folder.locked(), distribution_scope(config.strategy, config.replicas):
        folder.claim(settings, _changeable(config))
        return _run(corpus, config, settings, folder)


def _changeable(config: TranslationConfig) -> tuple[str, ...]:
    """The settings that may change between two starts; not the budget that the learning rate follows."""
    follows_budget = config.peak_learning_rate is not None
    return tuple(name for name in RESUMABLE_FIELDS if not (follows_budget and name in BUDGET))


def _settings(corpus: Corpus, config: TranslationConfig) -> dict[str, Any]:
    """What a run is known by."""
    return {
        **dataclasses.asdict(config),
        "row_multiple": row_multiple(config),
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
    }


def _run(
    corpus: Corpus, config: TranslationConfig, settings: dict[str, Any], folder: RunFolder
) -> dict[str, Any]:
    keras.utils.set_random_seed(config.seed)
    say(corpus_text(corpus))
    tokenizer = prepared_tokenizer(corpus, config, folder.tokenizer)
    batches, validation = prepared_batches(corpus, config, tokenizer, folder.store)
    say(batches_text(batches, config))
    with activity("building the model"):
        model = compiled_model(config, tokenizer)
        peak = replica_count(config) * matmul_peak(config.dtype)
    say(f"Model {config.preset}, {config.dtype}. {forecast(model, batches, config, peak)}.")
    checkpoints = train_to_budget(
        model, batches, validation, tokenizer, corpus, config, folder, peak
    )
    averaged = average_last(model, checkpoints, config, folder)
    training = _training_figures(model, checkpoints, averaged)
    with activity("saving the model"), atomic_path(folder.model) as partial:
        model.save(partial)

    split = "validation" if corpus.test is None else "test"
    sources, references = list(corpus.splits[split].sources()), list(corpus.references(split))
    evaluation = evaluate_run(
        folder,
        settings,
        model,
        tokenizer,
        batches,
        validation,
        sources,
        references,
        name=f"{corpus.name}, {split} part",
        devices=replica_count(config),
    )
    average = list(evaluation["systems"].values())[-1]
    translations = evaluation["translations"]
    report = {
        "corpus": corpus.name,
        "synthetic": corpus.synthetic,
        "pairs": {name: len(text) for name, text in corpus.splits.items()},
        "vocabulary_size": tokenizer.vocabulary_size,
        "parameters": model.count_params(),
        "config": settings,
        "batches": {k: v for k, v in batches.statistics().items() if k != "shapes"},
        "training": training,
        "validation_perplexity": average["perplexity"],
        "environment": _environment(),
        "test": {
            "split": split,
            "sentences": len(sources),
            **_scores(average["scores"]),
            "seconds": average["seconds"],
            "examples": _examples(sources, translations, references),
        },
    }
    write_atomically(folder.translations, "\n".join([*translations, ""]))
    with SummaryWriter(folder.logs, resumes=False) as writer:
        writer.scalar("test/bleu", report["test"]["bleu"], training["updates"])
        writer.scalar("test/chrf", report["test"]["chrf"], training["updates"])
    write_report(evaluation, folder.path, settings, figures=report)
    print(results_text(folder, report))
    return folder.finished_report() or report


def _training_figures(
    model: Transformer, checkpoints: Checkpoints, averaged: list[str]
) -> dict[str, Any]:
    """What the training took, for the report."""
    return {
        "updates": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        "minutes": round(checkpoints.seconds / 60, 2),
        "averaged_checkpoints": len(averaged),
        "averaged_from": averaged,
        "history": checkpoints.history,
    }


def _scores(scores: dict[str, Any]) -> dict[str, Any]:
    """BLEU and chrF of a system, with their signatures."""
    return {
        name: value
        for metric in ("bleu", "chrf")
        for name, value in (
            (metric, scores[metric]["score"]),
            (f"{metric}_signature", scores[metric]["signature"]),
        )
    }


def _examples(
    sources: list[str], translations: list[str], references: list[str]
) -> list[dict[str, str]]:
    """Five sentences from all over the set."""
    step = max(1, len(sources) // 5)
    names = ("source", "translation", "reference")
    rows = list(zip(sources, translations, references, strict=True))[::step][:5]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _environment() -> dict[str, str]:
    names = ("keras", "tensorflow", "jax", "torch", "sentencepiece", "sacrebleu", "numpy")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "backend": keras.backend.backend(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **versions,
    }
