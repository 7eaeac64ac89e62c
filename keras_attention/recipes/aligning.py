"""Where each word of a translation comes from, and how sure the model was of each token."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_attention.data.normalization import normalize
from keras_attention.data.word_alignments import word_positions
from keras_attention.decoding.translator import Translation, Translator
from keras_attention.recipes.scoring import batches_of, padded, token_log_probabilities
from keras_attention.utils.checks import check_choice, check_has, check_iterable, check_texts
from keras_attention.utils.sides import encode_side, end_of, piece_of
from keras_attention.visualization.attention_entries import attention_entries
from keras_attention_viewer.alignment import ROWS, Alignments
from keras_attention_viewer.codec import dequantize
from keras_attention_viewer.tokens import is_sentence_pieces

if TYPE_CHECKING:
    from keras_attention.data.corpus import Corpus
    from keras_attention.recipes.run import Run

# Pairs whose true alignments are compared, and how many of them are read at once.
MEASURED, AT_ONCE = 500, 50
# A head: number of its layer and its own, both from 0.
Head = tuple[int, int]


def with_details(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[Sequence[Translation]],
    head: Sequence[int] | None = None,
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
        head: The head of the cross-attention to ask, as its layer and its number, from 0; see
            `alignment_head`. Defaults to the one that the model's card names: of a run, the head that learned
            alignments or aligned best on its validation set. Else to the mean of all heads, which aligns
            worse than the best one.
        rows: Whether a row of the head stands for the word that is `"read"` there or the one that is
            `"predicted"`. Defaults to what the card says of that head, else to `"read"`.

    Returns:
        The same translations, with `alignment` and `token_scores`.

    Raises:
        ValueError: If there is no such head, or the model has no attention to read.
    """
    model, tokenizer = translator.model, translator.tokenizer
    check_has("model", model, "a Keras model, whose attention can be read", "attention_scores")
    texts = check_texts("texts", texts)
    translations = [
        list(check_iterable("translations", each))
        for each in check_iterable("translations", translations)
    ]
    for one in itertools.chain(*translations):
        check_has("translations", one, "lists of `Translation`", "text", "token_ids", "is_finished")
    if len(texts) != len(translations):
        raise ValueError(
            f"Every text needs its translations. Received: {len(texts)} texts, {len(translations)} "
            "lists of translations"
        )
    head, known_rows = _asked(translator.card.get("alignment"), head)
    is_predicting = check_choice("rows", rows or known_rows, [*ROWS]) == "predicted"
    pairs = [
        (row, column) for row, found in enumerate(translations) for column in range(len(found))
    ]
    # An empty line is not translated by the model.
    pairs = [(row, column) for row, column in pairs if normalize(texts[row])]
    end = end_of(tokenizer, "source")
    sources = [
        [*ids, *end] for ids in encode_side(tokenizer, [texts[r] for r, _ in pairs], "source")
    ]
    chosen = [translations[row][column] for row, column in pairs]
    targets = [[*each.token_ids, *[tokenizer.end_token_id] * each.is_finished] for each in chosen]
    scores = token_log_probabilities(model, tokenizer, sources, targets, translator.show_progress)
    links: dict[int, tuple[tuple[int, int], ...]] = {}
    for batch in batches_of(sources, targets):
        read, written = [sources[i] for i in batch], [chosen[i].token_ids for i in batch]
        weights = _weights(model, tokenizer, read, written, head, is_predicting)
        for i, weights_of_pair in zip(batch, weights, strict=True):
            links[i] = _links(tokenizer, sources[i], chosen[i].token_ids, weights_of_pair)
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


def _asked(known: Any, head: Sequence[int] | None) -> tuple[Sequence[int] | None, str]:
    """Return the head to ask and what its rows stand for, by what the card knows."""
    own = known.get("head") if isinstance(known, Mapping) else None
    if own is None or (head is not None and not np.array_equal(head, own)):
        return head, "read"
    return own, "predicted" if known.get("rows") == "predicted" else "read"


def check_head(translator: Translator, head: Sequence[int] | None) -> None:
    """Raise a ValueError unless attention can be read in the model of a translator, and it has the head."""
    model = translator.model
    check_has("model", model, "a Keras model, whose attention can be read", "attention_scores")
    if head is not None:
        _check_within(head, len(model.decoder_blocks), model.num_heads)


def alignment_head(
    model: Any, tokenizer: Any, alignments: Mapping[tuple[str, str], Sequence[tuple[int, int]]]
) -> tuple[Head, str, float]:
    """Return the head of the cross-attention that aligns best, by which rows, and its alignment error rate.

    A row of a head stands for the word that the decoder reads there, `"read"`, or for the next one,
    `"predicted"`. Content words count. The true alignments are those of pairs of text, as
    `Corpus.alignments` holds them.

    Raises:
        ValueError: If no pair has a link to compare with.
    """
    rates, _ = _error_rates(model, tokenizer, alignments)
    if rates is None:
        raise ValueError("`alignments` has no link between words of the pairs' texts.")
    rows, layer, head = _least(rates)
    return (layer, head), [*ROWS][rows], float(rates[rows, layer, head])


def _least(rates: np.ndarray) -> list[int]:
    """Return where the error rates (rows, layers, heads) are the least."""
    return list(map(int, np.unravel_index(rates.argmin(), rates.shape)))


def _check_within(head: Sequence[int], layers: int, heads: int) -> None:
    is_pair = np.shape(head) == (2,) and np.asarray(head).dtype.kind in "iu"
    if not (is_pair and 0 <= head[0] < layers and 0 <= head[1] < heads):
        raise ValueError(
            f"`head` must be a layer from 0 to {layers - 1} and a head from 0 to {heads - 1}. "
            f"Received: {head!r}"
        )


def alignment_figures(run: Run, split: str) -> dict[str, Any]:
    """Return how well a run aligns words, where true alignments are known; else an empty dict.

    The head of a model without guided alignment is the one that aligns its validation set best, by the words
    that its rows read or by those that they predict.
    """
    known, chosen_by = (_known(run.corpus, part) for part in (split, "validation"))
    head = run.settings.get("guided_alignment_head")
    if not known or not (head or chosen_by):
        return {}
    rates, sentences = _error_rates(run.model, run.tokenizer, known)
    chosen = rates if head else _error_rates(run.model, run.tokenizer, chosen_by)[0]
    if rates is None or chosen is None:
        return {}
    # Guided alignment teaches the words that are read.
    place = (0, *head) if head else tuple(_least(chosen))
    figures = {
        "head": [*place[1:]],
        "rows": [*ROWS][place[0]],
        "is_guided": head is not None,
        "error_rate": float(rates[place]),
        "split": split,
        "sentences": sentences,
    }
    return {"alignment": figures}


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
    if not measured:
        raise ValueError("`alignments` is empty: there is nothing to choose a head by.")
    rates = [rate for each in measured if (rate := each.error_rates()) is not None]
    if len(rates) < len(ROWS):  # No sentence has a true alignment.
        return None, sentences
    return np.reshape(rates, (len(ROWS), *shape)), sentences


def _weights(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    head: Sequence[int] | None,
    is_predicting: bool,
) -> np.ndarray:
    """Return the weights (B, T, S) of the row in which the decoder reads, or predicts, each target token."""
    pad, most = tokenizer.pad_token_id, getattr(model, "max_length", None)
    # A first row reads the start token. One that was cut off may have no position left to be read at.
    read = padded([[tokenizer.start_token_id, *ids][:most] for ids in targets], pad, most)
    rows = np.arange(max(map(len, targets))) + (not is_predicting)
    rows = np.minimum(rows, read.shape[1] - 1)
    layers = model.attention_scores(padded(sources, pad, most), read)["cross"]
    if head is None:
        arrays = [keras.ops.convert_to_numpy(layer).mean(axis=1) for layer in layers]
        return np.mean(arrays, axis=0)[:, rows]
    _check_within(head, len(layers), layers[0].shape[1])
    return keras.ops.convert_to_numpy(layers[head[0]])[:, head[1], rows]


def _links(
    tokenizer: Any, source: Sequence[int], target: Sequence[int], weights: np.ndarray
) -> tuple[tuple[int, int], ...]:
    """Return the links of a pair from weights (T, S)."""
    pieces = [
        [piece_of(tokenizer, token, side) for token in ids]
        for side, ids in (("source", source), ("target", target))
    ]
    # A translation may have no word's start at all.
    is_marked = is_sentence_pieces(pieces[0] + pieces[1])
    columns, rows = (
        _members(word_positions(tokenizer, ids, side, is_marked), len(ids))
        for side, ids in (("source", source), ("target", target))
    )
    if not len(rows) or not len(columns):
        return ()
    # Weights are summed over the pieces of the word that is read from, and averaged over those that read.
    means = rows / rows.sum(axis=1, keepdims=True)
    words = means @ weights[: len(target), : len(source)] @ columns.T
    return tuple((int(word), number) for number, word in enumerate(words.argmax(axis=1)))


def _members(words: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Return which tokens belong to which word, as zeros and ones (words, length)."""
    members = np.zeros((len(words), length))
    for number, word in enumerate(words):
        members[number, word] = 1
    return members
