"""Evaluate the checkpoints that a run averages, and their average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.cost import matmul_peak
from keras_attention.evaluation.perplexity import PerplexityMeter
from keras_attention.evaluation.report import evaluation_report
from keras_attention.evaluation.training_cost import training_cost
from keras_attention.training.checkpoint_store import read_manifest
from keras_attention.training.checkpoints import select_checkpoints
from keras_attention.utils.run_folder import RunFolder


def evaluate_run(
    folder: RunFolder,
    settings: Mapping[str, Any],
    model: Any,
    tokenizer: Any,
    batches: Any,
    validation: Any,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    name: str = "test set",
    devices: int = 1,
    device: str | None = None,
    peak: float | None = None,
    samples: int = 1000,
) -> dict[str, Any]:
    """Evaluate the checkpoints of a run.

    Afterwards the model has the average of the checkpoints.

    Args:
        folder: The run's folder.
        settings: The run's settings, as in `config.json`.
        model: The run's model; its weights are replaced.
        tokenizer: The run's tokenizer.
        batches: `TokenBatches` of the training set, for the cost; None for a report without it.
        validation: Batches of the validation set, for the perplexity; None for a report without it.
        sources: Sentences to translate.
        references: Their reference translations.
        name: Name of these sentences.
        devices: Number of devices that trained, for the paper's formula.
        device: A GPU of the paper, such as `"P100"`; by default the speed of this machine is used.
        peak: FLOP/s of a device, if already measured; a new measurement may differ.
        samples: Resamples of the paired bootstrap.

    Returns:
        What `evaluation_report` returned.

    Raises:
        ValueError: If the folder holds no checkpoint.
    """
    chosen = select_checkpoints(
        folder.checkpoints,
        settings["averaged_checkpoints"],
        settings.get("checkpoint_minutes"),
        settings.get("checkpoint_updates"),
    )
    decoding = {key: settings[key] for key in ("beam_size", "length_penalty")}
    cost = None
    if batches is not None:
        last = read_manifest(chosen[-1], verify=False)
        cost = training_cost(
            model,
            batches,
            last["updates"],
            seconds=last["seconds"],
            devices=devices,
            device=device,
            peak=None if device else peak or matmul_peak(settings["dtype"]),
        )
    meter = PerplexityMeter(model)
    return evaluation_report(
        model,
        Translator(model, tokenizer, **decoding),
        chosen,
        sources,
        references,
        name=name,
        language=settings["languages"][1],
        measure_perplexity=None if validation is None else lambda: meter(validation),
        cost=cost,
        decoding=decoding,
        samples=samples,
    )
