"""COMET of translations, by the package `unbabel-comet`, if it is installed."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import sys
from collections.abc import Iterable
from typing import Any

from keras_attention.evaluation.bleu import CorpusScore, comparable_lines
from keras_attention.utils.checks import check_comet


def corpus_comet(
    sources: Iterable[str], hypotheses: Iterable[str], references: Iterable[str], model: str
) -> CorpusScore:
    """COMET of a corpus (Rei et al. 2020), 100 times the mean of the model's scores of all sentences.

    Args:
        sources, hypotheses, references: The sentences, their translations, their references.
        model: Name of the model, such as `"Unbabel/wmt22-comet-da"`, which is downloaded at its first use.

    Raises:
        ImportError: If `unbabel-comet` is not installed.
        ValueError: If the lists are empty, differ in length or hold anything but strings.
    """
    check_comet("model", model)
    sources, _ = comparable_lines(sources, references := list(references), "sources")
    hypotheses, references = comparable_lines(hypotheses, references)
    rows = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    with contextlib.redirect_stdout(sys.stderr):  # The report alone is on the standard output.
        result = _loaded(model).predict(rows, batch_size=16, gpus=_gpus())
    score = 100 * float(result.system_score)
    signature = f"model:{model}|scale:100|version:{importlib.metadata.version('unbabel-comet')}"
    return CorpusScore("COMET", score, signature, f"COMET = {score:.2f}")


def fetch_comet(model: str) -> None:
    """Download a model of COMET unless it is here already, so that a wrong name is refused before work."""
    check_comet("model", model)
    import comet

    try:
        comet.download_model(model)
    except Exception as error:  # of huggingface_hub, requests or COMET itself
        raise ValueError(f"COMET's model {model!r} cannot be had: {error}") from error


@functools.lru_cache(maxsize=1)
def _loaded(model: str) -> Any:
    import comet

    return comet.load_from_checkpoint(comet.download_model(model))


def _gpus() -> int:
    import torch

    return int(torch.cuda.is_available())
