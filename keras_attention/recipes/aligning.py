"""Where each word of a translation comes from, and how sure the model was of each token.

Keras is imported only where a Keras model is asked: markup goes without.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from keras_attention.data.corpus import Corpus
from keras_attention.data.normalization import normalize
from keras_attention.decoding.marked import MarkedTranslator
from keras_attention.decoding.translation import asked_head, check_head, word_links
from keras_attention.decoding.translator import Translation, Translator
from keras_attention.utils.arguments import Has, checked
from keras_attention.utils.checks import check_choice, check_has
from keras_attention.utils.sides import encode_ended
from keras_attention_viewer.alignment import ROWS, Alignments
from keras_attention_viewer.codec import dequantize

# Pairs whose true alignments are compared, and how many of them are read at once.
MEASURED, AT_ONCE = 500, 50
Found = Annotated[Translation, Has("a `Translation`", "text", "token_ids", "is_finished")]


@checked
def with_details(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[Sequence[Found]],
    head: Any = None,
    rows: str | None = None,
) -> list[list[Translation]]:
    """Return translations with their word alignments and the scores of their tokens.

    The model reads each translation once more. A target word is aligned with the source word that the
    cross-attention weighs most while the decoder reads it
    ([Chen et al. 2020](https://arxiv.org/abs/2004.14837)), or predicts it; the end token is no word, so every
    word has one link. A word is what stands between spaces.

    Args:
        translator: The `Translator` of a Keras model, in which attention can be read.
        texts: The source texts.
        translations: For each of them its translations, as `translator.translate` has returned them.
        head: The head of the cross-attention to ask, as its layer and its number, from 0. Defaults to the one
            that the model's card names: of a run, the head that learned alignments or aligned best on its
            validation set. Else to the mean of all heads, which aligns worse than the best one.
        rows: Whether a row of the head stands for the word that is `"read"` there or the one that is
            `"predicted"`. Defaults to what the card says of that head, else to `"read"`.

    Returns:
        The same translations, with `alignment` and `token_scores`.

    Raises:
        ValueError: If there is no such head, or the model has no attention to read.
    """
    from keras_attention.recipes.scoring import token_log_probabilities

    model, tokenizer = translator.model, translator.tokenizer
    check_has("model", model, "a Keras model, whose attention can be read", "attention_scores")
    if len(texts) != len(translations):
        raise ValueError(
            f"Every text needs its translations. Received: {len(texts)} texts, {len(translations)} "
            "lists of translations"
        )
    head, known_rows = asked_head(translator.card, head)
    asked = head, check_choice("rows", rows or known_rows, [*ROWS])
    pairs = [
        (row, column) for row, found in enumerate(translations) for column in range(len(found))
    ]
    # An empty line is not translated by the model.
    pairs = [(row, column) for row, column in pairs if normalize(texts[row])]
    sources = encode_ended(tokenizer, [texts[row] for row, _ in pairs], "source")
    chosen = [translations[row][column] for row, column in pairs]
    targets = [[*each.token_ids, *[tokenizer.end_token_id] * each.is_finished] for each in chosen]
    scores = token_log_probabilities(model, tokenizer, sources, targets, translator.show_progress)
    written = [each.token_ids for each in chosen]
    both = [(texts[row], each.text) for (row, _), each in zip(pairs, chosen, strict=True)]
    links = word_links(model, tokenizer, sources, written, both, asked)
    result = [
        [dataclasses.replace(each, alignment=(), token_scores=()) for each in found]
        for found in translations
    ]
    for i, (row, column) in enumerate(pairs):
        token_scores = tuple(map(float, scores[i]))
        result[row][column] = dataclasses.replace(
            chosen[i], alignment=links[i], token_scores=token_scores
        )
    return result


def reading_attention(
    translator: Translator, aligned: str | None, head: Sequence[int] | None
) -> tuple[Any, Any]:
    """Return what translates lines, and what adds to their translations, for `result_lines`.

    `aligned` is "alignment", "markup", or None for neither; `head` aligns, as of `with_details`.
    """
    if aligned is None:
        return translator, None
    check_head(translator.model, head)
    if aligned == "markup":
        return MarkedTranslator(translator, head), None
    return translator, lambda texts, found: with_details(translator, texts, found, head)


def alignment_figures(
    corpus: Corpus, split: str, model: Any, tokenizer: Any, head: Sequence[int] | None
) -> dict[str, Any] | None:
    """Return how well a model aligns words, where true alignments are known; else None.

    The head of a model without guided alignment is the one that aligns the validation set best, by the words
    that its rows read or by those that they predict. Content words count.
    """
    known, chosen_by = (_known(corpus, part) for part in (split, "validation"))
    if not known or not (head or chosen_by):
        return None
    rates, sentences = _error_rates(model, tokenizer, known)
    chosen = rates if head else _error_rates(model, tokenizer, chosen_by)[0]
    if rates is None or chosen is None:
        return None
    place = tuple(map(int, np.unravel_index(chosen.argmin(), chosen.shape)))
    if head:
        place = 0, *head  # Guided alignment teaches the words that are read.
    return {
        "head": [*place[1:]],
        "rows": [*ROWS][place[0]],
        "is_guided": head is not None,
        "error_rate": float(rates[place]),
        "split": split,
        "sentences": sentences,
    }


def _known(corpus: Corpus, split: str) -> dict[tuple[str, str], Any]:
    """Return the true links of the first pairs of a part, as far as the corpus has them."""
    if not corpus.alignments:
        return {}
    pairs = itertools.islice(corpus.splits[split], MEASURED)
    return {pair: links for pair in pairs if (links := corpus.alignments.get(pair))}


def _error_rates(
    model: Any, tokenizer: Any, alignments: Mapping[tuple[str, str], Any]
) -> tuple[Any, int]:
    """Return the alignment error rates (rows, layers, heads), or None; and the number of sentences."""
    from keras_attention.visualization.attention_entries import attention_entries

    waiting = iter(alignments.items())
    shape: tuple[int, int] = (0, 0)
    measured: list[Alignments] = []
    sentences = 0
    while some := dict(itertools.islice(waiting, AT_ONCE)):
        entries = attention_entries(
            model, tokenizer, [*some], alignments=[*some.values()], predicted=0
        )
        for entry in entries:
            weights = entry.weights["cross"]
            shape = (len(weights), len(weights[0]))
            measured = measured or [Alignments(shape[0] * shape[1], rows) for rows in ROWS]
            for each in measured:
                each.add(dequantize(weights), entry)
            sentences += entry.header["alignment"] is not None
    rates = [rate for each in measured if (rate := each.error_rates()) is not None]
    if len(rates) < len(ROWS):  # No sentence has a true alignment.
        return None, sentences
    return np.reshape(rates, (len(ROWS), *shape)), sentences
