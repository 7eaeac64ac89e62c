"""Translations of the same lines by several models, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_attention.data.text_files import read_lines
from keras_attention.evaluation.report import Sentences, compared, system_scores
from keras_attention.utils.run_folder import RunFolder


def own_translations(runs: Mapping[str, RunFolder]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the translations of their test set that finished runs have kept, by name, and its references."""
    remedy = "Give --source-file and --reference-file: all runs then translate these."
    translations: dict[str, list[str]] = {}
    test_sets = {}
    for name, run in runs.items():
        for file in (run.report, run.translations, run.references):
            if not file.is_file():
                raise ValueError(f"'{name}' has no {file.name}: it is not finished. {remedy}")
        settings = run.settings()
        translations[name] = list(read_lines(run.translations))
        # The fingerprint tells of the sources, too.
        fingerprint = settings.get("test_fingerprint", settings.get("validation_fingerprint"))
        test_sets[name] = fingerprint, list(read_lines(run.references))
    first, *others = test_sets
    for other in others:
        if test_sets[other] != test_sets[first]:
            sizes = [f"{len(test_sets[name][1]):,}" for name in (first, other)]
            raise ValueError(
                f"'{first}' and '{other}' have different test sets, of {' and '.join(sizes)} sentences "
                "(every character counts, another Unicode form, too): their translations cannot be "
                f"compared. {remedy}"
            )
    return translations, test_sets[first][1]


def runs_report(
    translations: Mapping[str, Sequence[str]],
    text: Sentences,
    *,
    decoding: Mapping[str, Any] | None = None,
    samples: int = 1000,
) -> dict[str, Any]:
    """Scores of models on one test set, and whether they differ from the first by more than chance.

    The dict for `report_text` is like that of `evaluation_report`, without averaging and cost.
    """
    scores = {name: system_scores(lines, text) for name, lines in translations.items()}
    return {
        **compared(translations, text, decoding, samples),
        # `report_text` shows the last first.
        "systems": {
            name: {"scores": scores[name], "perplexity": None} for name in reversed(scores)
        },
    }
