"""Train a Transformer to translate, and report how well it does (sections 5 and 6.1 of the paper)."""

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import platform
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras

from keras_attention.callbacks.checkpoints import Checkpoints
from keras_attention.data.batches import TokenBatches
from keras_attention.data.corpora import Corpus
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.evaluation.cost import matmul_peak
from keras_attention.evaluation.report import write_report
from keras_attention.models.transformer import Transformer
from keras_attention.recipes.config import BUDGET, RESUMABLE_FIELDS, TranslationConfig
from keras_attention.recipes.evaluate import evaluate_run
from keras_attention.recipes.messages import (
    batches_text,
    corpus_text,
    finished_text,
    forecast,
    results_text,
)
from keras_attention.recipes.prepare import (
    check_model,
    check_room,
    compiled_model,
    prepared_batches,
    prepared_tokenizer,
    replica_count,
    row_multiple,
)
from keras_attention.recipes.train import average_last, save_model, train_to_budget
from keras_attention.training.agreement import (
    check_agreement,
    chief_first,
    failing_together,
    values_of_all,
)
from keras_attention.training.distribution import Devices, distribution_scope, is_chief
from keras_attention.training.joining import check_launch, check_workers
from keras_attention.utils.checks import check_has, check_path, divisors
from keras_attention.utils.files import PARTIAL, write_atomically
from keras_attention.utils.progress import activity, say
from keras_attention.utils.run_folder import RunFolder
from keras_attention.visualization.summary_writer import SummaryWriter


def train_translation(
    corpus: Corpus, config: TranslationConfig, output_dir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Train on a corpus, translate its test set and score it. All files are in one folder.

    The folder gets `config.json`, `tokenizer/`, `store/` (token ids), `checkpoints/`, `logs/` (for
    TensorBoard), `averaged/` and `model.keras` (both the average), `translations.txt` and `report.json`.

    Call it again with the same arguments to continue a run that was stopped or killed: it continues from
    its last checkpoint as if nothing had happened. A finished run returns its report. The settings in
    `RESUMABLE_FIELDS` may change between two starts. So a finished run trains on if its budget is raised,
    unless its learning rate followed the budget to the end.

    Args:
        corpus: What to train on. Without a test set, the validation set is translated.
        config: The settings.
        output_dir: The run's folder.

    Returns:
        The report: every figure that was printed. If several processes train, process 0 returns it, and
        the others return an empty dict.

    Raises:
        ValueError: If no model can be made from the settings, the folder belongs to another
            configuration or corpus, or another process works on it.
        TrainingStopped: A `KeyboardInterrupt`, after Ctrl-C or SIGTERM; the run can be resumed.
        OSError: If a checkpoint cannot be written, for instance because the disk is full.
    """
    check_has("corpus", corpus, "a Corpus", "splits", "train", "validation")
    check_has("config", config, "a TranslationConfig", "preset", "steps")
    output_dir = check_path("output_dir", output_dir)
    check_workers()
    check_launch(config.strategy)
    with contextlib.ExitStack() as held:
        with distribution_scope(config.strategy, config.replicas) as devices:
            folder = RunFolder(output_dir)
            settings, report = _begin(corpus, config, folder, held, devices)
            if report is not None:
                return report
            trained = _train(corpus, config, folder, devices)
            if devices.num_processes == 1:
                return _report(corpus, config, settings, folder, trained)
        if devices.process_index != 0:
            return {}
        # The chief continues alone, with a model that is not shared with the other processes.
        alone = trained._replace(model=compiled_model(config, trained.tokenizer))
        return _report(corpus, config, settings, folder, alone)


class _Trained(NamedTuple):
    """The results of a run's training."""

    model: Transformer
    tokenizer: Tokenizer
    batches: TokenBatches
    validation: TokenBatches
    checkpoints: Checkpoints
    device_peak: float


def _begin(
    corpus: Corpus,
    config: TranslationConfig,
    folder: RunFolder,
    held: contextlib.ExitStack,
    devices: Devices,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Check that the run can be trained, and claim its folder.

    Returns its settings, and its report if it is already finished.

    Args:
        corpus: The text.
        config: The run's settings.
        folder: The run's folder.
        held: Receives what lasts as long as the run: the lock, and the silence of all but the chief.
        devices: The devices that the run uses.
    """
    with failing_together():
        check_model(config)
        check_room(corpus.train, config)
        settings = run_settings(corpus, config)
    place = str(folder.path.resolve())
    check_agreement({**settings, **environment(), "machine": None, "output_dir": place})
    with failing_together():
        _check_shares(folder, config)
        folder.check(settings, changeable(config))
        report = folder.finished_report()
    mark = folder.path / f"{PARTIAL}{values_of_all(uuid.uuid4().hex)[0]}"
    if not is_chief():
        held.enter_context(_silence())
    how_long = (*BUDGET, "patience")
    reported = (report or {}).get("config", {})
    if report is not None and all(reported.get(name, 0) == settings[name] for name in how_long):
        if is_chief():
            folder.remove_leftovers()  # From a process that was killed after its last file.
        say(finished_text(folder, report, can_go_on="steps" in changeable(config)))
        return settings, report if is_chief() else {}
    with chief_first():
        if is_chief():
            held.enter_context(folder.locked())
            folder.claim(settings, changeable(config))
            if devices.num_processes > 1:
                write_atomically(mark, "")
        elif not mark.exists():
            raise ValueError(
                f"Process 0 wrote a file into the run's folder '{place}', but this process does not see it. "
                "Choose an output folder that all machines share."
            )
    if devices.num_processes > 1 and is_chief():
        mark.unlink()
    return settings, None


def _check_shares(folder: RunFolder, config: TranslationConfig) -> None:
    """Raise unless the devices can share the batches of the run that is in the folder."""
    if not folder.has_trained():
        return
    rows = 0
    with contextlib.suppress(ValueError, OSError):  # `folder.check` says what is wrong there.
        rows = folder.settings().get("row_multiple", 0)
    devices, parts = replica_count(config), config.accumulation_steps
    if rows % (devices * parts):
        fitting = divisors(rows // parts) if rows % parts == 0 else "no number of"
        raise ValueError(
            f"The run in '{folder.path}' has batches of a multiple of {rows} sentences, which {devices} "
            f"device(s) with {parts} part(s) each cannot share evenly. With {parts} part(s), it can continue "
            f"on {fitting} device(s). A new run with a larger row_multiple, such as 24 or 120, can run on "
            "more numbers of devices."
        )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard the output of this process: only the chief prints."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def changeable(config: TranslationConfig) -> tuple[str, ...]:
    """The settings that may change between two starts: not a budget that the learning rate follows."""
    follows_budget = config.peak_learning_rate is not None
    return tuple(name for name in RESUMABLE_FIELDS if not (follows_budget and name in BUDGET))


def run_settings(corpus: Corpus, config: TranslationConfig) -> dict[str, Any]:
    """The settings that identify a run."""
    return {
        **dataclasses.asdict(config),
        "row_multiple": row_multiple(config),
        "corpus": corpus.name,
        "languages": [corpus.source_language, corpus.target_language],
        **{f"{name}_fingerprint": text.fingerprint() for name, text in corpus.splits.items()},
    }


@functools.cache
def _measured_peak(dtype: str) -> float:
    """`matmul_peak`, once in a process, which may train many runs."""
    return matmul_peak(dtype)


def _train(
    corpus: Corpus, config: TranslationConfig, folder: RunFolder, devices: Devices
) -> _Trained:
    """Prepare the text, make the model and train it, alone or with other processes."""
    keras.utils.set_random_seed(config.seed)
    say(corpus_text(corpus))
    with chief_first():
        tokenizer = prepared_tokenizer(corpus, config, folder.tokenizer)
        batches, validation = prepared_batches(corpus, config, tokenizer, folder.store)
    say(batches_text(batches, config))
    with activity("building the model"):
        model = compiled_model(config, tokenizer)
        device_peak = _measured_peak(config.dtype)
        peak = replica_count(config) * device_peak
    say(f"Model {config.preset}, {config.dtype}. {forecast(model, batches, config, peak)}.")
    checkpoints = train_to_budget(
        model, batches, validation, tokenizer, corpus, config, folder, peak, devices
    )
    return _Trained(model, tokenizer, batches, validation, checkpoints, device_peak)


def _report(
    corpus: Corpus,
    config: TranslationConfig,
    settings: dict[str, Any],
    folder: RunFolder,
    trained: _Trained,
) -> dict[str, Any]:
    """Average the checkpoints, translate the test set, write the model and the report."""
    model, tokenizer, batches, validation, checkpoints, device_peak = trained
    averaged = average_last(model, checkpoints, config, folder)
    training = {**_training_figures(model, checkpoints, averaged), "device_peak": device_peak}
    with activity("saving the model"):
        save_model(model, folder)

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
        peak=device_peak,
    )
    *alone, average = evaluation["systems"].values()
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
        "last_validation_perplexity": (alone or [average])[-1]["perplexity"],
        "environment": environment(),
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
        for metric in ("bleu", "chrf"):
            # The name sorts after `validation`: TensorBoard unfolds the first two groups of the alphabet.
            tag = f"with_average/{split}_{metric}"
            writer.scalar(tag, report["test"][metric], training["updates"])
    write_report(evaluation, folder.path, settings, figures=report)
    print(results_text(folder, report, can_go_on="steps" in changeable(config)))
    return folder.finished_report() or report


def _training_figures(
    model: Transformer, checkpoints: Checkpoints, averaged: list[str]
) -> dict[str, Any]:
    """Figures of the training, for the report."""
    return {
        "updates": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        "minutes": round(checkpoints.seconds / 60, 2),
        "training_minutes": round(checkpoints.stateful["Budget"].seconds / 60, 2),
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
    """Five sentences, evenly spread over the set."""
    step = max(1, len(sources) // 5)
    names = ("source", "translation", "reference")
    rows = list(zip(sources, translations, references, strict=True))[::step][:5]
    return [dict(zip(names, row, strict=True)) for row in rows]


def environment() -> dict[str, str]:
    """Versions of Python and of the libraries that a result depends on, and the machine."""
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
