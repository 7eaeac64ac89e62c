"""The attention of a model on sentence pairs, as entries for the attention viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attention.utils.arguments import FromZero, Has, checked
from keras_attention.utils.sides import encode_side, end_of, piece_of, places_without_text
from keras_attention_viewer.codec import KINDS, Entry, make_entry
from keras_attention_viewer.tokens import (
    Token,
    describe_tokens,
    is_sentence_pieces,
    split_words,
    word_count,
    words_between_spaces,
)

RUNNERS_UP = 5
# Digits of a probability that are kept.
DIGITS = 6


def predictions(
    logits: Any, predicted: Sequence[Sequence[int]], tokenizer: Any
) -> list[list[dict[str, Any]] | None]:
    """Return what a model thought of each token of translations, ready for `make_entry`.

    Of logits `(B, T, V)` of the next tokens, and of the tokens of each translation, at most T. For each token
    there is a dict with its probability `"p"` and the likeliest `"others"`, at most five pairs of a piece and
    its probability; for a translation None if a logit is not finite.
    """
    ids = np.zeros(logits.shape[:2], "int32")
    for row, tokens in enumerate(predicted):
        ids[row, : len(tokens)] = tokens
    scores = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    own = ops.take_along_axis(scores, ops.convert_to_tensor(ids[..., None]), axis=-1)
    best, places = ops.top_k(scores, min(RUNNERS_UP + 1, logits.shape[-1]))
    own, best, places = (ops.convert_to_numpy(each) for each in (own[..., 0], best, places))

    def of_token(row: int, t: int) -> dict[str, Any]:
        ranked = zip(places[row, t], np.exp(best[row, t], dtype="float64"), strict=True)
        others = [
            [piece_of(tokenizer, int(token), "target"), round(float(p), DIGITS)]
            for token, p in ranked
            if token != ids[row, t]
        ]
        return {"p": round(float(np.exp(own[row, t])), DIGITS), "others": others[:RUNNERS_UP]}

    return [
        [of_token(row, t) for t in range(len(tokens))]
        if np.isfinite(own[row, : len(tokens)]).all()
        else None
        for row, tokens in enumerate(predicted)
    ]


START = "<start>"
Links = Sequence[tuple[FromZero, FromZero]]
Found = Annotated[Any, Has("a `Translation`", "text", "score", "is_finished")]


@checked
def attention_entries(
    model: Annotated[Any, Has("a model that gives its attention", "attention_scores")],
    tokenizer: Annotated[Any, Has("a Tokenizer", "encode", "id_to_token")],
    pairs: Sequence[tuple[str, str]],
    *,
    step: FromZero = 0,
    target: Literal["reference", "output"] = "reference",
    target_ids: Sequence[Sequence[FromZero]] | None = None,
    alignments: Sequence[Links | None] | None = None,
    token_ranks: Any = None,
    alternatives: Sequence[Sequence[Found]] | None = None,
    predicted: FromZero | None = None,
) -> list[Entry]:
    """Read the attention of all layers and heads on sentence pairs, in one batch.

    The decoder reads the given translations, not its own, so that entries of different steps can be
    compared. `keras_attention_viewer.measured` adds measures to the entries.

    Args:
        model: A `Transformer`, or another model with `attention_scores(encoder_token_ids,
            decoder_token_ids)`. The entries have the kinds of attention that this returns: a decoder with
            SSRUs has none of its own. With `attention_details` as well, as a `Transformer` has, they also
            have what each word contributes and what the model thought of each word that it predicts.
        tokenizer: The model's `Tokenizer`.
        pairs: Source texts and their translations.
        step: Number of updates of the model. Defaults to 0.
        target: `"reference"`, or `"output"` for translations by the model. Defaults to `"reference"`.
        target_ids: Token ids of the translations, without the end token. Defaults to those of the
            tokenizer; a beam search may split words differently.
        alignments: For each pair its true alignment, as pairs of a source and a target word index (words
            are those of `split_words`), or None.
        token_ranks: Array `(V,)` with the rank of each token by frequency, 0 for the most frequent; see
            `token_ranks`. If source and target have vocabularies of their own, a dict with an array for
            `"source"` and one for `"target"`.
        alternatives: For each pair what the beam search found, each a `Translation`, best first.
        predicted: Number of pairs, from the first on, whose entries have what each word contributes and the
            probabilities and runners-up; those of many pairs are slow to compute. Defaults to all.

    Returns:
        An entry for each pair.

    Raises:
        FloatingPointError: If the weights are not finite.
        ValueError: If there is no pair, or the arguments do not fit together.
    """
    ranks = check_ranks(token_ranks, tokenizer)
    named = {"target_ids": target_ids, "alignments": alignments, "alternatives": alternatives}
    _check_beside(pairs, named)
    # A translation that was cut off at the model's longest has no end.
    longest = getattr(model, "max_length", None) if target == "output" else None
    ids = _ids(tokenizer, pairs, target_ids, longest)
    weights, norms, thoughts = _inside(model, tokenizer, ids, predicted)
    entries = []
    for row, (source_text, target_text) in enumerate(pairs):
        source = _tokens(tokenizer, ids.source[row], ranks["source"], "source")
        read = _tokens(tokenizer, ids.read[row], ranks["target"])
        output = _tokens(tokenizer, ids.predicted[row], ranks["target"])
        sides = {"source": len(source), "decoder": len(read), "decoder_input": len(read)}
        shapes = {
            kind: (sides[rows], sides[columns])
            for kind, (rows, columns) in KINDS.items()
            if kind in weights
        }
        fits = _has_words_of(source, source_text) and _has_words_of(output, target_text)
        entries.append(
            make_entry(
                *(step, source_text, target_text, source, read, output),
                {
                    kind: [layer[row, :, :t, :s] for layer in weights[kind]]
                    for kind, (t, s) in shapes.items()
                },
                target=target,
                alignment=alignments[row] if alignments is not None and fits else None,
                predictions=thoughts[row],
                alternatives=None if alternatives is None else _described(alternatives[row]),
                value_norms={
                    kind: [layer[row, :, : shapes[kind][1]] for layer in layers]
                    for kind, layers in norms.items()
                    if row < len(layers[0])
                }
                or None,
            )
        )
    return entries


def _inside(
    model: Any, tokenizer: Any, ids: _Ids, predicted: int | None
) -> tuple[dict[str, list[np.ndarray]], dict[str, list[np.ndarray]], list[Any]]:
    """Return weights and norms by kind, for each layer of all pairs, and for each pair the thoughts or None.

    The first `predicted` pairs have norms and thoughts, if the model gives them.
    """
    padded = _padded((ids.source, ids.read), tokenizer)
    thoughts: list[Any] = [None] * len(ids.source)
    norms: Any = {}
    if hasattr(model, "attention_details"):
        scores, norms, logits = model.attention_details(*padded, rows=predicted)
        if len(logits):
            thoughts[: len(logits)] = predictions(logits, ids.predicted[: len(logits)], tokenizer)
    else:
        scores = model.attention_scores(*padded)
    weights, norms = (
        {kind: [_array(layer) for layer in layers] for kind, layers in found.items()}
        for found in (scores, norms)
    )
    return weights, norms, thoughts


def _check_beside(pairs: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Refuse what is given beside the pairs, unless it is None or has an entry for each."""
    if not pairs or any(given is not None and len(given) != len(pairs) for given in named.values()):
        shown = ", ".join(f"{name}={given!r}" for name, given in named.items())
        raise ValueError(
            "`pairs` must hold at least one pair; `target_ids`, `alignments` and `alternatives` one entry "
            f"for each. Received: {len(pairs)} pairs, {shown}"
        )


def padded_pairs(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
    """Token ids of sentence pairs: source `(B, S)`, target shifted right and target `(B, T)`."""
    return _padded(_ids(tokenizer, pairs, None), tokenizer)


def token_ranks(counts: Any) -> np.ndarray:
    """Ranks of tokens by frequency, 0 for the most frequent, from their counts `(V,)`.

    >>> token_ranks([5, 0, 9, 7]).tolist()
    [2, 3, 0, 1]
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise ValueError(f"`counts` must be integers (V,) of at least 0. Received: {counts!r}")
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks


def _described(translations: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"text": one.text, "score": float(one.score), "is_finished": bool(one.is_finished)}
        for one in translations
        if np.isfinite(one.score)
    ]


def check_ranks(token_ranks: Any, tokenizer: Any) -> dict[str, Any]:
    """Return the ranks of each side; raise a ValueError unless they are None or an integer for each token."""
    sides = token_ranks
    if not isinstance(token_ranks, Mapping):
        sides = dict.fromkeys(("source", "target"), token_ranks)
    # A tokenizer of one's own need not know its size.
    size = getattr(tokenizer, "vocabulary_size", None)
    sizes = {"source": size, "target": getattr(tokenizer, "target_vocabulary_size", size)}
    for side, size in sizes.items():
        ranks = np.asarray(sides.get(side, ()))
        is_short = size is not None and ranks.shape != (size,)
        if token_ranks is not None and (
            ranks.ndim != 1 or ranks.dtype.kind not in "iu" or is_short
        ):
            shape = "(V,)" if size is None else f"({size},)"
            raise ValueError(
                f"`token_ranks` must be a rank for each token of the {side}, shape {shape}. Received: "
                f"{token_ranks!r}"
            )
    return dict(sides)


class _Ids(NamedTuple):
    """What the encoder reads, what the decoder reads, and what the decoder predicts, for each pair."""

    source: list[list[int]]
    read: list[list[int]]
    predicted: list[list[int]]


def _ids(
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    target_ids: Sequence[Sequence[int]] | None,
    longest: int | None = None,
) -> _Ids:
    texts = [source for source, _ in pairs]
    end = end_of(tokenizer, "source")
    sources = [[*ids, *end] for ids in encode_side(tokenizer, texts, "source")]
    if target_ids is None:
        target_ids = encode_side(tokenizer, [text for _, text in pairs], "target")
    predicted = [[*map(int, ids), tokenizer.end_token_id][:longest] for ids in target_ids]
    read = [[tokenizer.start_token_id, *ids[:-1]] for ids in predicted]
    return _Ids(sources, read, predicted)


def _padded(sides: Sequence[list[list[int]]], tokenizer: Any) -> list[np.ndarray]:
    pad = {"padding": "post", "value": tokenizer.pad_token_id}
    return [keras.utils.pad_sequences(rows, **pad) for rows in sides]


def _array(scores: Any) -> np.ndarray:
    weights = np.asarray(keras.ops.convert_to_numpy(scores)).astype("float32")
    if not np.isfinite(weights).all():
        raise FloatingPointError(
            "The attention weights of the model are not finite. Has its training diverged?"
        )
    return weights


def _tokens(tokenizer: Any, ids: Sequence[int], ranks: Any, side: str = "target") -> list[Token]:
    first_is_start = side == "target" and ids[0] == tokenizer.start_token_id
    pieces = [piece_of(tokenizer, token, side) for token in ids]
    special = places_without_text(tokenizer, ids, side)
    if first_is_start:
        pieces[0] = START
        special.add(0)
    prefix = getattr(tokenizer, "source_prefix", None)
    if side == "source" and prefix:  # No word of the text.
        words = words_between_spaces(describe_tokens(pieces, special), is_sentence_pieces(pieces))
        special.update(place for word in words[: len(prefix.split())] for place in word)
    return describe_tokens(
        pieces, special, None if ranks is None else [int(ranks[token]) for token in ids]
    )


def _has_words_of(tokens: Sequence[Token], text: str) -> bool:
    """Whether a text and its tokens have the same number of words, so that an alignment fits."""
    return word_count(tokens) == len(split_words(text))
