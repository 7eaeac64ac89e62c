"""The order of a run: train, average, save, evaluate (sections 5 and 6.1)."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_attention.callbacks.signals import stopping_at_once
from keras_attention.data.corpora import Corpus
from keras_attention.evaluation.report import write_report
from keras_attention.models.pretrained import assign_weights
from keras_attention.models.transformer import Transformer
from keras_attention.recipes import results
from keras_attention.recipes.attention import SHOWN, attention_log, middling_pairs
from keras_attention.recipes.chosen_checkpoints import ChosenCheckpoints
from keras_attention.recipes.config import TranslationConfig
from keras_attention.recipes.loop import train_to_end
from keras_attention.recipes.messages import (
    batches_text,
    corpus_text,
    device_text,
    model_text,
    results_text,
)
from keras_attention.recipes.run import Run
from keras_attention.spec import SpecError
from keras_attention.spec.files import save_spec
from keras_attention.training.checkpoint_store import set_aside
from keras_attention.training.checkpoints import save_average
from keras_attention.training.distribution import device_kind
from keras_attention.utils.arguments import checked
from keras_attention.utils.checks import counted
from keras_attention.utils.files import DamagedFile, atomic_path, remove_folder, write_atomically
from keras_attention.utils.progress import Progress, activity, say, show
from keras_attention.utils.run_folder import CHECKPOINT, RunFolder
from keras_attention.visualization.attention_page import save_attention
from keras_attention.visualization.event_files import SummaryWriter


@checked
def train_translation(
    corpus: Corpus,
    config: TranslationConfig,
    output_dir: str | os.PathLike[str],
    finish: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
) -> dict[str, Any]:
    """Train on a corpus, translate its test set and score it. All files are in one folder.

    The folder gets `config.json`, `tokenizer/`, `store/` (token ids), `checkpoints/`, `logs/` (for
    TensorBoard), `metrics.jsonl`, `averaged/` (the average), `model.keras` and `spec/` (both the result),
    `translations.txt`, `references.txt`, `report.txt`, `report.json` and `attention.html`.

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
    return complete(Run(corpus, config, output_dir, finish=finish, callbacks=callbacks))


def complete(run: Run) -> dict[str, Any]:
    """Do all that is not done yet, as `train_translation` does; return the report."""
    with run.started():
        if run.report is None:
            seconds = train(run)
            if not run.is_chief:
                return {}
            try:
                with stopping_at_once(), Progress(3, "finishing", "steps") as progress:
                    progress.left(seconds)
                    average(run)
                    progress.add(1)
                    save(run)
                    progress.add(1)
                    run.report = evaluate(run)
                    progress.add(1)
            except KeyboardInterrupt:
                say(
                    "The training is done and saved, its report is not. The same command writes it."
                )
                raise
            show(results_text(run.folder, run.report, can_go_on="steps" in run.config.changeable))
    return run.report


def train(run: Run) -> float | None:
    """Prepare the text, make the model and train it, alone or with other processes.

    Return about how many seconds all the rest takes, if that is known.
    """
    keras.utils.set_random_seed(run.config.seed)
    say(device_text(run.devices.num_replicas, device_kind(), run.config))
    say(corpus_text(run.corpus, run.resolved.start))
    say(batches_text(run.batches))
    with activity("building the model"):
        _ = run.model, run.peak
    say(model_text(run.model, run.config, run.batches))
    logs = functools.partial(attention_log, run.tokenizer, run.text, run.batches.store)
    loop = train_to_end(run, logs if run.config.attention_log else None)
    checkpoints = loop.checkpoints
    run.training = {
        "updates": loop.checkpoints.updates,
        "minutes": round(checkpoints.seconds / 60, 2),
        "training_minutes": round(checkpoints.stateful["Budget"].seconds / 60, 2),
        "history": checkpoints.history,
        "patience_is_over": checkpoints.stateful["StopWithoutGain"].is_over,
    }
    run.leave_processes()
    return loop.beside.ending


def average(run: Run) -> None:
    """Give the model the average of the last checkpoints, kept in `averaged/`, or the best one.

    With `start_share` the model gets the mean of that and of the pretrained weights, which is kept there.
    """
    chosen, intact = run.chosen, _intact(run.chosen)
    with activity(f"averaging {counted(len(intact), 'checkpoint')}"):
        save_average(run.model, run.folder.average, intact, True, chosen.load)
    run.training["averaged_checkpoints"] = len(intact)
    run.training["averaged_from"] = [path.name for path in intact]
    if chosen.best is not None:
        run.training["best_checkpoint"] = {**chosen.best, "is_final": chosen.ends_with_best}
        if chosen.ends_with_best:
            intact = chosen.named("best")
            chosen.load(run.model, intact)
    elif run.config.final_model == "best":
        say(
            f"No {run.config.best_by} was measured, so no checkpoint is the best. The average is used."
        )
    share, restart = run.config.start_share, run.resolved.restart
    if share and restart is not None:
        with activity(f"keeping {share:.0%} of the pretrained weights"):
            load = chosen.load_mixed(restart)
            save_average(run.model, run.folder.average, intact, True, load)


def _intact(chosen: ChosenCheckpoints) -> list[Path]:
    """Return the checkpoints to average. Damaged ones get other names: the evaluation finds none, either."""
    paths = chosen.averaged()
    for path in paths:
        try:
            CHECKPOINT.read(path)
        except DamagedFile as error:
            say(f"{error} It is kept as '{set_aside(path).name}'; the average leaves it out.")
            return _intact(chosen)
    return paths


def save(run: Run) -> None:
    """Save the model as `model.keras`, its spec, which needs no Keras, in `spec/`, and its attention."""
    with activity("saving the model"):
        save_model(run.model, run.folder)
    _save_attention(run)


def evaluate(
    run: Run, sections: Mapping[str, results.Section] = results.SECTIONS
) -> dict[str, Any]:
    """Translate the test set with the average and what it is made of, score, and write the report.

    Each section adds what it makes of the translations, under its name, if that is anything.
    """
    split = run.test_split
    text = run.sentences(split, f"{run.corpus.name}, {split} part")
    evaluation = run.evaluation(text)
    made = {name: section(run, evaluation["translations"]) for name, section in sections.items()}
    found = {name: figures for name, figures in made.items() if figures is not None}
    evaluation |= {**found, "also_trained": run.corpus.also_trained}
    report = {
        **results.run_figures(run),
        "training": run.training,
        **results.evaluation_figures(evaluation, split, text),
        **{name: results.in_short(figures) for name, figures in found.items()},
    }
    write_atomically(run.folder.references, "\n".join([*text.references, ""]))
    # A model may write a line break, of byte pieces; line i of the file belongs to sentence i.
    lines = [" ".join(text.splitlines()) for text in evaluation["translations"]]
    write_atomically(run.folder.translations, "\n".join([*lines, ""]))
    with SummaryWriter(run.folder.logs, resumes=False) as writer:
        for metric in ("bleu", "chrf"):
            value, updates = report["test"][metric], run.training["updates"]
            writer.scalar(f"with_average/{split}_{metric}", value, updates)
    write_report(evaluation, run.folder.path, run.settings, figures=report)
    return run.folder.finished_report() or report


def _save_attention(run: Run) -> None:
    """Write a page of where the heads look in some validation sentences and the model's translations."""
    pairs = middling_pairs(run.text, run.tokenizer)[:SHOWN] if run.config.attention_log else []
    if pairs:
        with activity("making the page of its attention"):
            translator, sources = run.translator(run.model), [source for source, _ in pairs]
            save_attention(
                run.folder.attention,
                translator,
                sources,
                name=run.corpus.name,
                run=run.folder.path,
                overwrite=True,
            )


def save_model(model: Transformer, folder: RunFolder) -> None:
    """Save a model as `model.keras`, and its spec, which needs no Keras, in `spec/`.

    Of a model with LoRA, both have merged kernels, and others open them as any other.
    """
    # A process that is killed in between leaves a model without a spec, never with a wrong one.
    if folder.spec.exists():
        remove_folder(folder.spec)
    with atomic_path(folder.model) as partial:
        _merged(model).save(partial)
    with contextlib.suppress(SpecError):  # A model that no spec can describe: only Keras loads it.
        save_spec(model.spec(), folder.spec)


def _merged(model: Transformer) -> Transformer:
    """Return a model without LoRA. Keras would merge in the precision of the computation."""
    if model.lora_rank is None:
        return model
    plain = type(model).from_config(model.get_config())
    assign_weights(plain, model.spec())
    return plain
