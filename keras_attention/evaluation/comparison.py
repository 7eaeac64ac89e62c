"""Compare several translations of one text: their scores, and whether the difference is significant."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.evaluation.bleu import (
    CorpusScore,
    bleu_tokenizer,
    check_lines,
    comparable_lines,
    corpus_bleu,
    corpus_chrf,
)
from keras_attention.evaluation.moses_bleu import moses_knows, tokenized_bleu
from keras_attention.utils.arguments import checked


@dataclasses.dataclass(frozen=True)
class PairedDifference:
    """The difference between a system and the baseline, by sacreBLEU's paired tests.

    Attributes:
        metric: What was compared, such as "BLEU".
        system: Name of the system.
        baseline: Name of the system that it is compared with.
        score: The system's score.
        baseline_score: The baseline's.
        difference: `score` minus `baseline_score`.
        interval: Half the width of the 95 % confidence interval of the system's score.
        baseline_interval: The same for the baseline's score.
        p_value: Probability of a difference at least this large if the systems are equally good, by paired
            bootstrap resampling (Koehn 2004); 1 for a difference of 0, and for a single sentence.
        randomization_p_value: The same by paired approximate randomization (Riezler and Maxwell 2005).
        signature: sacreBLEU's signature of the bootstrap, with the number of samples and the seed.
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
    randomization_p_value: float
    signature: str


@checked
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
    scores = {"bleu": corpus_bleu(hypotheses, references, language=language)}
    if language is not None and moses_knows(language):
        scores["tokenized_bleu"] = tokenized_bleu(hypotheses, references, language=language)
    return {**scores, "chrf": corpus_chrf(hypotheses, references)}


@checked
def paired_tests(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    baseline: str | None = None,
    language: str | None = None,
    samples: Annotated[int, Ge(1), Le(10**6)] = 1000,
) -> list[PairedDifference]:
    """Compare each system with the baseline, by both paired tests of sacreBLEU.

    The bootstrap draws sentences with replacement, the same for both systems; the randomization swaps the
    translations of sentences. The seed is sacreBLEU's: `SACREBLEU_SEED` in the environment, or else 12345.

    Args:
        systems: Translations by name, all of the same text, at least two.
        references: The reference of each sentence.
        baseline: Name of the system that the others are compared with; by default the first.
        language: Language code of the text, which chooses the tokenizer. Defaults to None, an unknown one.
        samples: Number of resamples, and of trials of the randomization.

    Returns:
        A `PairedDifference` for each metric (BLEU, chrF2) and other system.

    Raises:
        ValueError: If there is nothing to compare, or the baseline is not one of the systems.

    Example:

    >>> one = ["Ein Hund bellt im Garten.", "Zwei Frauen lesen ein Buch."]
    >>> other = ["Ein Hund bellt im Wald.", "Zwei Frauen lesen ein Buch."]
    >>> differences = paired_tests({"one": one, "other": other}, one, samples=50)
    >>> [(d.metric, d.system, d.difference < 0) for d in differences][0]
    ('BLEU', 'other', True)
    """
    translations = {}
    for name, lines in systems.items():
        translations[name], references = comparable_lines(lines, references, f"systems[{name!r}]")
    baseline = next(iter(systems), "") if baseline is None else baseline
    if len(systems) < 2 or baseline not in systems:
        raise ValueError(
            "A comparison needs two systems or more, the baseline among them. Received: "
            f"systems {list(systems)}, baseline {baseline!r}"
        )
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest

    names = [baseline, *(name for name in translations if name != baseline)]
    named: list[Any] = [(name, list(translations[name])) for name in names]
    metrics: dict[str, Any] = {"BLEU": BLEU(tokenize=bleu_tokenizer(language)), "chrF2": CHRF()}
    outcomes: list[Any] = [
        PairedTest(named, metrics, [list(references)], test_type=kind, n_samples=samples)()
        for kind in ("bs", "ar")
    ]
    (signatures, resampled), (_, swapped) = outcomes
    differences = []
    for metric in metrics:
        base, *others = resampled[metric]
        for name, result, trials in zip(names[1:], others, swapped[metric][1:], strict=True):
            # sacreBLEU counts only larger differences, and so finds one where nothing can vary.
            is_certain = len(references) == 1 or result.score == base.score
            differences.append(
                PairedDifference(
                    metric=metric,
                    system=name,
                    baseline=baseline,
                    score=float(result.score),
                    baseline_score=float(base.score),
                    difference=float(result.score - base.score),
                    interval=float(result.ci),
                    baseline_interval=float(base.ci),
                    p_value=1.0 if is_certain else result.p_value,
                    randomization_p_value=1.0 if is_certain else trials.p_value,
                    signature=str(signatures[metric]),
                )
            )
    return differences
