"""Compare several translations of one text: their scores, and whether the difference is significant."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_attention.evaluation.bleu import (
    CorpusScore,
    bleu_tokenizer,
    check_lines,
    comparable_lines,
    corpus_bleu,
    corpus_chrf,
)
from keras_attention.evaluation.moses_bleu import (
    METRIC_NAME,
    moses_knows,
    moses_tokenizer,
    multi_bleu_metric,
    tokenized_bleu,
)
from keras_attention.utils.checks import check_integer, check_optional, check_text


@dataclasses.dataclass(frozen=True)
class PairedDifference:
    """The difference between a system and the baseline, by paired bootstrap resampling (Koehn 2004).

    Attributes:
        metric: What was compared, such as "BLEU".
        system: Name of the system.
        baseline: Name of the system that it is compared with.
        score: The system's score.
        baseline_score: The baseline's.
        difference: `score` minus `baseline_score`.
        interval: Half the width of the 95 % confidence interval of the system's score.
        baseline_interval: The same for the baseline's score.
        p_value: Probability of a difference at least this large if the systems are equally good; 1 for a
            difference of 0, and for a single sentence, whose resamples are all the same.
        samples: Number of resamples.
        seed: Seed of the resampling.
    """

    metric: str
    system: str
    baseline: str
    score: float
    baseline_score: float
    difference: float
    interval: float
    baseline_interval: float
    p_value: float
    samples: int
    seed: int


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str | None = None
) -> dict[str, CorpusScore]:
    """sacreBLEU's BLEU, the paper's tokenised BLEU, and chrF, each with its signature.

    Args:
        hypotheses: Translations as plain text.
        references: The reference of each, in the same order.
        language: Language code of both, which chooses the tokenizers. Defaults to None, an unknown one.

    Returns:
        `"bleu"`, `"tokenized_bleu"` if Moses knows the language, and `"chrf"`.

    Example:

    >>> scores = corpus_scores(["Ein Hund bellt."], ["Ein Hund bellt."], "de")
    >>> [f"{name} {score.score:.1f}" for name, score in scores.items()]
    ['bleu 100.0', 'tokenized_bleu 100.0', 'chrf 100.0']
    """
    hypotheses, references = check_lines(hypotheses, references)
    check_optional(check_text, "language", language)
    scores = {"bleu": corpus_bleu(hypotheses, references, language=language)}
    if language is not None and moses_knows(language):
        scores["tokenized_bleu"] = tokenized_bleu(hypotheses, references, language=language)
    return {**scores, "chrf": corpus_chrf(hypotheses, references)}


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    baseline: str | None = None,
    language: str | None = None,
    samples: int = 1000,
    seed: int = 12345,
) -> list[PairedDifference]:
    """Compare each system with the baseline, by sacreBLEU's paired bootstrap resampling.

    Sentences are drawn with replacement, the same sentences for both systems. The same seed gives
    the same numbers.

    Args:
        systems: Translations by name, all of the same text, at least two.
        references: The reference of each sentence.
        baseline: Name of the system that the others are compared with; by default the first.
        language: Language code of the text, which chooses the tokenizers. Defaults to None, an unknown one.
        samples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        A `PairedDifference` for each metric (BLEU, chrF2, the paper's BLEU if Moses
        knows the language) and other system.

    Raises:
        ValueError: If there is nothing to compare, or the baseline is not one of the systems.

    Example:

    >>> one = ["Ein Hund bellt im Garten.", "Zwei Frauen lesen ein Buch."]
    >>> other = ["Ein Hund bellt im Wald.", "Zwei Frauen lesen ein Buch."]
    >>> differences = paired_bootstrap({"one": one, "other": other}, one, samples=50)
    >>> [(d.metric, d.system, d.difference < 0) for d in differences][0]
    ('BLEU', 'other', True)
    """
    if not isinstance(systems, Mapping):
        raise ValueError(f"`systems` must be a dict of translations by name. Received: {systems!r}")
    translations = {}
    for name, lines in systems.items():
        translations[name], references = comparable_lines(lines, references, f"systems[{name!r}]")
    check_optional(check_text, "language", language)
    check_integer("samples", samples, 1, 10**6)
    check_integer("seed", seed, 0)
    baseline = next(iter(systems), "") if baseline is None else check_text("baseline", baseline)
    if len(systems) < 2 or baseline not in systems:
        raise ValueError(
            "A comparison needs two systems or more, the baseline among them. Received: "
            f"systems {list(systems)}, baseline {baseline!r}"
        )
    from sacrebleu.metrics import BLEU, CHRF

    bleu = BLEU(tokenize=bleu_tokenizer(language))
    metrics: list[Any] = [
        ("BLEU", bleu, translations, references),
        ("chrF2", CHRF(), translations, references),
    ]
    if language is not None and moses_knows(language):
        tokenize = moses_tokenizer(language)
        tokenized = {name: list(map(tokenize, lines)) for name, lines in translations.items()}
        metrics.append(
            (METRIC_NAME, multi_bleu_metric(), tokenized, list(map(tokenize, references)))
        )
    differences, is_single = [], len(references) == 1
    for metric_name, metric, texts, reference in metrics:
        results = _resampled(metric, texts, reference, baseline, samples, seed)
        base = results.pop(baseline)
        for name, result in results.items():
            differences.append(
                PairedDifference(
                    metric=metric_name,
                    system=name,
                    baseline=baseline,
                    score=float(result.score),
                    baseline_score=float(base.score),
                    difference=float(result.score - base.score),
                    interval=float(result.ci),
                    baseline_interval=float(base.ci),
                    # sacreBLEU counts only larger differences, and so finds one where nothing can vary.
                    p_value=float(1 if is_single or result.score == base.score else result.p_value),
                    samples=samples,
                    seed=seed,
                )
            )
    return differences


def _resampled(
    metric: Any,
    texts: Mapping[str, Sequence[str]],
    references: Sequence[str],
    baseline: str,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """sacreBLEU's result for each system, the baseline first."""
    from sacrebleu.significance import PairedTest

    names = [baseline, *(name for name in texts if name != baseline)]
    with _sacrebleu_seed(seed):
        test = PairedTest(
            [(name, list(texts[name])) for name in names],
            {"metric": metric},
            [list(references)],
            test_type="bs",
            n_samples=samples,
        )
        _, columns = test()
    (results,) = (column for title, column in columns.items() if title != "System")
    return dict(zip(names, results, strict=True))


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacreBLEU reads its seed only from the environment."""
    name = "SACREBLEU_SEED"
    before = os.environ.get(name)
    os.environ[name] = str(seed or 2**64)  # It takes 0 for no seed.
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
