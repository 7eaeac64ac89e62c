"""Minimum Bayes risk: of several translations the one that agrees best with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from keras_attention.decoding.translation import Translation
from keras_attention.utils.arguments import BeamSize, check


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


class MinimumBayesRisk:
    """Method of `Translator` that chooses by agreement."""

    translate: Callable[..., Any]

    @overload
    def translate_mbr(self, texts: str, candidates: int, **options: Any) -> Translation: ...
    @overload
    def translate_mbr(
        self, texts: Iterable[str], candidates: int, **options: Any
    ) -> list[Translation]: ...

    def translate_mbr(self, texts, candidates, **options):
        """Return the translation that agrees best with all candidates: minimum Bayes risk.

        The candidates are the n best or, with `sampling`, samples. Each is as good as the mean of its chrF
        (sacreBLEU's, of a sentence) with all of them, itself included. Ties go to the first.

        Args:
            texts: A string, or an iterable of strings.
            candidates: Number of candidates of each text, `n_best` of `translate`; at most 1,000.
            **options: Further arguments of `translate`.

        Returns:
            A `Translation` for a string, or a list of them for several.

        Example: see `most_useful`.
        """
        check("candidates", candidates, BeamSize)  # Each is compared with each.
        if isinstance(texts, str):
            best = self.translate(texts, candidates, **options)
            return best[most_useful([one.text for one in best])]
        results = self.translate(texts, candidates, **options)
        return [best[most_useful([one.text for one in best])] for best in results]
