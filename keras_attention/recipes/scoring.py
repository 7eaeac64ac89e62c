"""How probable a model finds given translations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.ops.crossentropy import token_nll
from keras_attention.spec.parts import check_finite
from keras_attention.utils.progress import Progress
from keras_attention.utils.sides import encode_side, end_of

# Lengths are padded to a multiple of this, so that few shapes occur.
LENGTH_MULTIPLE = 8
BATCH_TOKENS = 2048


def log_probabilities(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    translations: Sequence[str],
    show_progress: bool = True,
    unusual: UnusualTexts | None = None,
) -> list[float]:
    """log P(translation | source) of each pair: the sum over its tokens, end token included.

    Args:
        model: A trained `Transformer`.
        tokenizer: Its tokenizer.
        sources: Sentences.
        translations: Their translations.
        show_progress: Whether a progress line is shown.
        unusual: Collects the sources unlike those of the training.

    Returns:
        Natural logarithms, one per pair.

    Raises:
        ValueError: If the lists differ in length.
        NonFiniteModel: If a weight of the model is infinite or NaN.
    """
    if len(sources) != len(translations):
        raise ValueError(
            f"Every source needs its translation. Received: {len(sources)} sources, "
            f"{len(translations)} translations"
        )
    check_finite({weight.path: weight for weight in model.weights})
    sides = [
        [[*ids, *end_of(tokenizer, side)] for ids in encode_side(tokenizer, texts, side)]
        for side, texts in (("source", sources), ("target", translations))
    ]
    if unusual is not None:
        unusual.add(sides[0], tokenizer, unusual.longest)
    longest = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
    order = sorted(range(len(sources)), key=lambda index: longest[index])
    results = [0.0] * len(sources)
    with Progress(len(sources), "scoring", "pairs", show_progress) as progress:
        while order:
            rows = max(1, BATCH_TOKENS // longest[order[-1]])
            batch, order = order[-rows:], order[:-rows]
            source, target = (
                _padded([side[i] for i in batch], tokenizer.pad_token_id) for side in sides
            )
            for index, value in zip(batch, _scores(model, tokenizer, source, target), strict=True):
                results[index] = float(value)
            progress.add(len(batch))
    return results


def _scores(model: Any, tokenizer: Any, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the log-probability of each row of `target` (B, T)."""
    start = np.full((len(target), 1), tokenizer.start_token_id, "int32")
    shifted = np.concatenate([start, target[:, :-1]], axis=1)
    logits = model({"encoder_token_ids": source, "decoder_token_ids": shifted}, training=False)
    rows = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1]))
    losses = ops.convert_to_numpy(token_nll(rows, ops.reshape(target, (-1,))))
    losses = losses.reshape(target.shape).astype("float64")
    return -np.where(target != tokenizer.pad_token_id, losses, 0.0).sum(axis=1)


def _padded(rows: Sequence[Sequence[int]], pad: int) -> np.ndarray:
    length = -(-max(map(len, rows)) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    return np.array([[*row, *[pad] * (length - len(row))] for row in rows], "int32")
