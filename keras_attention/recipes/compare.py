"""Translations of the same lines by several runs, in several precisions or with several search settings."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from keras_attention.data.text_files import read_lines
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.bleu import CorpusScore, corpus_bleu
from keras_attention.evaluation.report import Sentences, compared, system_scores
from keras_attention.utils.run_folder import RunFolder

PLAIN = "plain"


def own_translations(runs: Mapping[str, RunFolder]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the translations of their test set that finished runs have kept, by name, and its references."""
    remedy = "Give --source-file and --reference-file: all runs then translate these."
    translations: dict[str, list[str]] = {}
    test_sets = {}
    for name, run in runs.items():
        for file in (run.report, run.translations, run.references):
            if not file.is_file():
                raise ValueError(
                    f"'{name}' has no {file.name}: it is not finished, or an earlier version trained it. "
                    f"{remedy}"
                )
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


def compare_precisions(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    references: Sequence[str],
    precisions: Sequence[str],
    language: str | None = None,
    **decoding: Any,
) -> dict[str, dict[str, float]]:
    """Translate the same lines in several precisions; "plain" is the plain search in float32.

    Each has `bleu` (sacreBLEU), `differs` (lines unlike those of the first precision) and `seconds`.
    """
    results: dict[str, dict[str, float]] = {}
    first: list[str] = []
    for precision in precisions:
        if precision == PLAIN:
            translator = Translator(_in_float32(model), tokenizer, **decoding, engine="plain")
        else:
            translator = Translator(model, tokenizer, **decoding, precision=precision)
        translations, seconds = timed_translations(translator, sources)
        first = first or translations
        results[precision] = {
            "bleu": corpus_bleu(translations, references, language=language).score,
            "differs": sum(a != b for a, b in zip(translations, first, strict=True)),
            "seconds": seconds,
        }
    return results


def _in_float32(model: Any) -> Any:
    # The plain search computes as the model does, so a model in mixed precision would round.
    if model.compute_dtype == "float32":
        return model
    twin = type(model).from_config({**model.get_config(), "dtype": "float32"})
    twin.set_weights(model.get_weights())
    return twin


def timed_translations(translator: Translator, sources: Sequence[str]) -> tuple[list[str], float]:
    """Return the translations of these lines and the seconds they took, after a warm-up on a few."""
    translator(list(sources[:2]))
    start = time.monotonic()
    translations = translator(list(sources))
    return translations, time.monotonic() - start


def precisions_text(results: Mapping[str, Mapping[str, float]], lines: int) -> str:
    """Return the comparison as a table.

    Example:

    >>> results = {"float32": {"bleu": 38.25, "differs": 0, "seconds": 20.0},
    ...            "int8": {"bleu": 38.15, "differs": 31, "seconds": 10.0}}
    >>> print(precisions_text(results, lines=1000), end="")
    precision     BLEU  difference  lines that differ  sentences/s
    float32      38.25       +0.00                  0         50.0
    int8         38.15       -0.10                 31        100.0
    """
    base = next(iter(results.values()))["bleu"]
    rows = ["precision     BLEU  difference  lines that differ  sentences/s"]
    for precision, row in results.items():
        rows.append(
            f"{precision:<11}{row['bleu']:>7.2f}{row['bleu'] - base:>+12.2f}"
            f"{row['differs']:>19}{lines / max(row['seconds'], 1e-9):>13.1f}"
        )
    return "\n".join(rows) + "\n"


@dataclasses.dataclass(frozen=True)
class SearchScore:
    """The score and the time of one search setting.

    Attributes:
        beam_size: Hypotheses kept.
        length_penalty: alpha.
        bleu: BLEU of all lines.
        seconds: Time for all lines, after a warm-up call on a few.
    """

    beam_size: int
    length_penalty: float
    bleu: CorpusScore
    seconds: float


def compare_searches(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    references: Sequence[str],
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
    language: str | None = None,
    **decoding: Any,
) -> list[SearchScore]:
    """Translate the same lines with every beam size, in the outer loop, and every length penalty."""
    scores = []
    for beam_size, length_penalty in itertools.product(beam_sizes, length_penalties):
        translator = Translator(
            model, tokenizer, beam_size=beam_size, length_penalty=length_penalty, **decoding
        )
        translations, seconds = timed_translations(translator, sources)
        bleu = corpus_bleu(translations, references, language=language)
        scores.append(SearchScore(beam_size, length_penalty, bleu, seconds))
    return scores


def searches_text(scores: Sequence[SearchScore], lines: int) -> str:
    """Return the scores as a table, the best BLEU marked; of equal ones, the first.

    Example:

    >>> bleu = corpus_bleu(["the cat sat on the mat"], ["the cat sat on the mat today"])
    >>> print(searches_text([SearchScore(4, 0.6, bleu, 0.5)], lines=1), end="")
    beam  length penalty    BLEU  sentences/s
       4             0.6   84.65          2.0  best; BLEU = 84.65 100.0/100.0/100.0/100.0 \
(BP = 0.846 ratio = 0.857 hyp_len = 6 ref_len = 7)
    """
    best = max(scores, key=lambda score: score.bleu.score)
    rows = ["beam  length penalty    BLEU  sentences/s"]
    for score in scores:
        mark = "best; " if score is best else ""
        rows.append(
            f"{score.beam_size:>4}{score.length_penalty:>16g}{score.bleu.score:>8.2f}"
            f"{lines / max(score.seconds, 1e-9):>13.1f}  {mark}{score.bleu.details}"
        )
    return "\n".join(rows) + "\n"
