"""The figures of a finished run, as `report.json` has them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_attention.data.filters import FilteredText
from keras_attention.evaluation.report import LAST, START, Sentences
from keras_attention.recipes.aligning import alignment_figures
from keras_attention.recipes.run import Run
from keras_attention.recipes.text import OLD_DOMAIN
from keras_attention.utils.versions import environment


def run_figures(run: Run) -> dict[str, Any]:
    """Return what a run was trained on, and with what."""
    corpus, text, of_batches = run.corpus, run.corpus.train, run.batches.statistics()
    return {
        "corpus": corpus.name,
        "synthetic": corpus.synthetic,
        "description": corpus.description,
        "filters": dataclasses.asdict(text.filters) if isinstance(text, FilteredText) else None,
        "pairs": {name: len(text) for name, text in corpus.splits.items()},
        "vocabulary_size": run.tokenizer.vocabulary_size,
        "parameters": run.model.count_params(),
        "config": run.settings,
        "batches": {name: value for name, value in of_batches.items() if name != "shapes"},
        "environment": environment(),
    }


def evaluation_figures(
    evaluation: Mapping[str, Any], split: str, text: Sentences
) -> dict[str, Any]:
    """How well a run translates its test set, by what `Run.evaluation` returned for this split."""
    systems = evaluation["systems"]
    result = list(systems.values())[-1]
    last = next((one for name, one in systems.items() if name.startswith(LAST)), result)
    perplexities = {
        "validation_perplexity": result["perplexity"],
        "last_validation_perplexity": last["perplexity"],
    }
    if START in systems:
        perplexities["first_validation_perplexity"] = systems[START]["perplexity"]
    return {
        **perplexities,
        "test": {
            "split": split,
            "sentences": len(text.sources),
            **_scores(result["scores"]),
            **_since_the_start(evaluation),
            "seconds": result["seconds"],
            "examples": _examples(text.sources, evaluation["translations"], text.references),
        },
    }


def _since_the_start(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Scores of the pretrained model, and whether those of the result differ from them by chance."""
    first, last = ([*evaluation["systems"]][i] for i in (0, -1))
    if first != START:
        return {}
    chance = next(
        one["p_value"]
        for one in evaluation["significance"]
        if (one["metric"], one["system"]) == ("BLEU", last)
    )
    return {"before": _scores(evaluation["systems"][first]["scores"]), "p_value": chance}


def in_short(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the scores of a section that evaluates another text, any other section as it is."""
    if "systems" not in section:
        return section
    last = [*section["systems"].values()][-1]
    figures = {"sentences": section["sentences"], **_scores(last["scores"])}
    return {**figures, **_since_the_start(section)}


def _old_domain(run: Run, _: Sequence[str]) -> dict[str, Any] | None:
    """How a fine-tuned run translates text as its pretrained model was made for, if there is some."""
    if OLD_DOMAIN not in run.corpus.extra or run.resolved.start is None:
        return None
    text = run.sentences(OLD_DOMAIN, "old domain")
    evaluation = run.evaluation(text, translations_alone=True)
    return {name: value for name, value in evaluation.items() if name != "translations"}


def _alignment(run: Run, _: Sequence[str]) -> dict[str, Any] | None:
    head = run.settings.get("guided_alignment_head")
    return alignment_figures(run.corpus, run.test_split, run.model, run.tokenizer, head)


# Makes figures of a run and its translations of the test set; None where there is nothing to say.
Section = Callable[[Run, Sequence[str]], dict[str, Any] | None]
SECTIONS: Mapping[str, Section] = {OLD_DOMAIN: _old_domain, "alignment": _alignment}


def _scores(scores: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for metric in ("bleu", "chrf")
        for name, value in (
            (metric, scores[metric]["score"]),
            (f"{metric}_signature", scores[metric]["signature"]),
        )
    }


def _examples(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str]
) -> list[dict[str, str]]:
    """Five pairs, evenly spread over the set, each of the most ordinary length there."""
    names = ("source", "translation", "reference")
    rows = [*dict.fromkeys(zip(sources, translations, references, strict=True))]
    ordinary = statistics.median(len(source) for source in sources)
    fifths = (rows[len(rows) * i // 5 : len(rows) * (i + 1) // 5] for i in range(5))
    chosen = [min(part, key=lambda row: abs(len(row[0]) - ordinary)) for part in fifths if part]
    return [dict(zip(names, row, strict=True)) for row in chosen]
