"""Minimum Bayes risk: of several translations the one that agrees best with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def most_useful(texts: Sequence[str]) -> int:
    """Return the index of the translation with the greatest expected utility.

    The utility of a translation, if another one were right, is its chrF as sacreBLEU computes it for a
    sentence. It is expected with each text as likely as it is often among the given ones. Ties go to the
    first.

    Args:
        texts: The translations of one sentence, at least one; a text may occur several times.

    Example: two of three agree more with each other than with the third.

    >>> most_useful(["a cat", "the dog sleeps", "the dogs sleep"])
    1

    Reference: [Kumar and Byrne, 2004](https://aclanthology.org/N04-1022); with samples and chrF,
    [Eikema and Aziz, 2020](https://aclanthology.org/2020.coling-main.398).
    """
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    times = Counter(texts)
    utilities = {
        text: sum(
            number * metric.sentence_score(text, [other]).score for other, number in times.items()
        )
        for text in times
    }
    best = max(utilities, key=lambda text: utilities[text])  # The first of equal ones.
    return list(texts).index(best)
