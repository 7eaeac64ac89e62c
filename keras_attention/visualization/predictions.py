"""What a model thought of each word of a translation: its probability, and those of the runners-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_attention.utils.sides import piece_of

RUNNERS_UP = 5
# Digits of a probability that are kept.
DIGITS = 6


def predictions(
    logits: Any, predicted: Sequence[Sequence[int]], tokenizer: Any
) -> list[list[dict[str, Any]] | None]:
    """Return what a model thought of each token of translations, ready for `make_entry`.

    Args:
        logits: Of the next token at each position, `(B, T, V)`.
        predicted: For each of the B translations the tokens that stand there, at most T.
        tokenizer: The model's `Tokenizer`.

    Returns:
        For each translation a list with a dict for each token: its probability `"p"`, and the likeliest
        `"others"`, at most five pairs of a piece and its probability. None if a logit is not finite.
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
