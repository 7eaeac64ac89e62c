"""How probable a model finds given translations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_attention.decoding.translation import batches_of, padded
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.spec.parts import check_finite
from keras_attention.training.losses import negative_log_likelihoods
from keras_attention.utils.progress import with_progress
from keras_attention.utils.sides import encode_ended


def log_probabilities(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    translations: Sequence[str],
    show_progress: bool = True,
    unusual: UnusualTexts | None = None,
) -> list[float]:
    """log P(translation | source) of each pair: the sum over its tokens, end token included.

    Sources unlike those of the training are added to `unusual`.
    """
    if len(sources) != len(translations):
        raise ValueError(
            f"Every source needs its translation. Received: {len(sources)} sources, "
            f"{len(translations)} translations"
        )
    source_ids = encode_ended(tokenizer, sources, "source")
    target_ids = encode_ended(tokenizer, translations, "target")
    if unusual is not None:
        unusual.add(source_ids, tokenizer, unusual.longest)
    scores = token_log_probabilities(model, tokenizer, source_ids, target_ids, show_progress)
    return [float(row.sum()) for row in scores]


def token_log_probabilities(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    show_progress: bool = True,
) -> list[np.ndarray]:
    """log P(token | source, tokens before it) of each token of each target: an array (T,) for each target.

    Sources and targets are token ids with the end token.
    """
    check_finite({weight.path: weight for weight in model.weights})
    results: list[np.ndarray] = [np.zeros(0)] * len(sources)
    most = getattr(model, "max_length", None)  # Learned positions have no more.
    batches = list(batches_of(sources, targets))
    shown = len(sources), "scoring", "pairs", show_progress
    for batch in with_progress(batches, *shown, sizes=map(len, batches)):
        ids = [
            padded([side[i] for i in batch], tokenizer.pad_token_id, most)
            for side in (sources, targets)
        ]
        for index, row in zip(batch, _scores(model, tokenizer, *ids), strict=True):
            results[index] = row[: len(targets[index])]
    return results


def _scores(model: Any, tokenizer: Any, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the log-probability of each token of `target` (B, T); 0 for padding."""
    start = np.full((len(target), 1), tokenizer.start_token_id, "int32")
    shifted = np.concatenate([start, target[:, :-1]], axis=1)
    logits = model({"encoder_token_ids": source, "decoder_token_ids": shifted}, training=False)
    losses = negative_log_likelihoods(target, ops.cast(logits, "float32"))
    losses = ops.convert_to_numpy(losses).astype("float64")
    return -np.where(target != tokenizer.pad_token_id, losses, 0.0)
