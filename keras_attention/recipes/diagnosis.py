"""Whether a wrong translation is the fault of the search or of the model."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_attention.data.model_card import languages_of
from keras_attention.data.normalization import normalize
from keras_attention.decoding.hypotheses import penalty
from keras_attention.decoding.translation import Translation
from keras_attention.decoding.translator import Translator
from keras_attention.evaluation.bleu import check_lines, corpus_bleu
from keras_attention.recipes.scoring import ids_of_pairs, token_log_probabilities
from keras_attention.utils.checks import check_has, check_integer

# Scores of one text by two computations differ by less.
TOLERANCE = 1e-3
KINDS = {
    "right": "the translation is the reference",
    "search": "a text with a better score exists: the search has missed it",
    "model": "the model prefers its translation to the reference",
}


class Diagnosis(NamedTuple):
    """What is known of a sentence. Scores are log-probabilities divided by the length penalty."""

    kind: str  # a key of `KINDS`
    source: str
    reference: str
    translation: str
    wider: str  # what the wider beam has found
    reference_score: float
    score: float
    wider_score: float


class Diagnoses(NamedTuple):
    """What `diagnose` returns: the sentences, and BLEU with the translator's beam and with the wider one."""

    sentences: list[Diagnosis]
    bleu: float
    wider_bleu: float

    def counts(self) -> dict[str, int]:
        """Return how many sentences are of each kind."""
        found = Counter(one.kind for one in self.sentences)
        return {kind: found[kind] for kind in KINDS}


def diagnose(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    wider_beam: int | None = None,
) -> Diagnoses:
    """Say of each sentence whether a text with a better score exists than the translation.

    It does if the reference has one, or what a wider beam finds: that is an error of the search. If it does
    not, and the translation is not the reference, then the model itself prefers the translation; a better
    search would not help. (Stahlberg and Byrne 2019, [On NMT Search Errors and Model
    Errors](https://arxiv.org/abs/1908.10090).) Few errors of the search are found so: a text with a better
    score than both may exist.

    Args:
        translator: The `Translator` of a Keras model.
        sources: Sentences.
        references: Their translations.
        wider_beam: Size of the wider beam. Defaults to four times the translator's.

    Raises:
        ValueError: If there is no sentence, the lists differ in length, or the wider beam is not wider.
    """
    check_has(
        "model", translator.model, "a Keras model, which gives probabilities", "attention_scores"
    )
    if translator.sampling is not None:
        raise ValueError(
            "`translator` draws samples, so there is no search to diagnose. Leave `sampling` out."
        )
    sources, references = check_lines(sources, references, "sources")
    beam_size = 4 * translator.beam_size if wider_beam is None else wider_beam
    check_integer("wider_beam", beam_size, translator.beam_size + 1)
    wider_translator = dataclasses.replace(translator, beam_size=beam_size)
    found, wider = (
        [best[0] for best in one.translate(sources)] for one in (translator, wider_translator)
    )
    scores = _scores(translator, sources, references)
    sentences = []
    for source, reference, score, one, other in zip(
        sources, references, scores, found, wider, strict=True
    ):
        own, best = (_comparable(each, translator.length_penalty) for each in (one, other))
        kind = "search" if max(score, best) > own + TOLERANCE else "model"
        if normalize(one.text) == normalize(reference):
            kind = "right"
        texts = (source, reference, one.text, other.text)
        sentences.append(Diagnosis(kind, *texts, score, own, best))
    _, language = languages_of(translator.card) or (None, None)
    bleu, wider_bleu = (
        corpus_bleu([one.text for one in texts], references, language=language).score
        for texts in (found, wider)
    )
    return Diagnoses(sentences, bleu, wider_bleu)


def _scores(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> list[float]:
    """Return the score of each reference, as the search would give it."""
    model, tokenizer = translator.model, translator.tokenizer
    source_ids, target_ids = ids_of_pairs(tokenizer, sources, references)
    rows = token_log_probabilities(
        model, tokenizer, source_ids, target_ids, translator.show_progress
    )
    alpha = translator.length_penalty
    return [float(row.sum() / penalty(len(row), alpha, np)) for row in rows]


def _comparable(translation: Translation, length_penalty: float) -> float:
    """Return the score of a translation divided by the penalty, which that of one cut off is not."""
    if translation.is_finished:
        return translation.score
    return translation.score / float(penalty(len(translation.token_ids), length_penalty, np))
