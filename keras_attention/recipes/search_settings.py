"""Which beam and which length penalty translate best: to be asked of the validation set (section 6.1)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.bleu import CorpusScore, corpus_bleu
from keras_attention.recipes.precisions import timed_translations


@dataclasses.dataclass(frozen=True)
class SearchScore:
    """What a setting of the search scores, and how long it takes.

    Attributes:
        beam_size: Hypotheses kept.
        length_penalty: alpha.
        bleu: Of all lines.
        seconds: For all lines, without those of a first call on a few.
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
    **decoding: Any,
) -> list[SearchScore]:
    """Translate the same lines with every beam size and every length penalty.

    Args:
        model: A trained `Transformer`.
        tokenizer: Its tokenizer.
        sources: Lines to translate.
        references: Their translations.
        beam_sizes: Each is tried with each penalty.
        length_penalties: Values of alpha.
        **decoding: Further arguments of `Translator`.

    Returns:
        A score for each setting, the beam sizes in the outer loop.
    """
    scores = []
    for beam_size, length_penalty in itertools.product(beam_sizes, length_penalties):
        translator = Translator(
            model, tokenizer, beam_size=beam_size, length_penalty=length_penalty, **decoding
        )
        translations, seconds = timed_translations(translator, sources)
        bleu = corpus_bleu(translations, references)
        scores.append(SearchScore(beam_size, length_penalty, bleu, seconds))
    return scores


def searches_text(scores: Sequence[SearchScore], lines: int) -> str:
    """The scores as a table, the best BLEU marked.

    Example:

    >>> bleu = corpus_bleu(["the cat sat on the mat"], ["the cat sat on the mat today"])
    >>> print(searches_text([SearchScore(4, 0.6, bleu, 0.5)], lines=1), end="")
    beam  length penalty    BLEU  sentences/s
       4             0.6   84.65          2.0  best; BLEU = 84.65 100.0/100.0/100.0/100.0 \
(BP = 0.846 ratio = 0.857 hyp_len = 6 ref_len = 7)
    """
    best = max(score.bleu.score for score in scores)
    rows = ["beam  length penalty    BLEU  sentences/s"]
    for score in scores:
        mark = "best; " if score.bleu.score == best else ""
        rows.append(
            f"{score.beam_size:>4}{score.length_penalty:>16g}{score.bleu.score:>8.2f}"
            f"{lines / max(score.seconds, 1e-9):>13.1f}  {mark}{score.bleu.details}"
        )
    return "\n".join(rows) + "\n"
