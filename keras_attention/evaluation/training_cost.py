"""The cost of a training run: counted FLOPs, and their share of the peak of its devices."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from keras_attention.evaluation.cost import ModelSizes, training_flops, transformer_flops
from keras_attention.utils.arguments import Count, Has, Positive, checked


@checked
def training_cost(
    model: Any,
    batches: Annotated[Any, Has("TokenBatches", "shape_statistics", "pairs")],
    updates: Count,
    *,
    seconds: Positive | None = None,
    peak: Positive | None = None,
) -> dict[str, Any]:
    """Return the cost of a run, for `evaluation_report`.

    Counted FLOPs are those of an epoch's batches, padding included, times the number of epochs.

    Args:
        model: A `Transformer`, or a mapping of its arguments, such as a preset with a `vocabulary_size`.
        batches: `TokenBatches` of the training part.
        updates: Number of optimizer updates.
        seconds: Wall-clock seconds of training, and
        peak: FLOP/s of all devices together, as `matmul_peak` measures for one: without both of them, FLOPs
            are only counted.

    Returns:
        A dict: `updates`, `flops_per_update`, `flops`, `flops_of_tokens`, `padding` (share of the
        positions) and, with `seconds` and `peak`, these and `mfu`.

    Raises:
        ValueError: If a number is too small.
    """
    sizes = ModelSizes.of(model)
    shapes = [(shape["shape"], shape["batches"]) for shape in batches.shape_statistics()]
    per_epoch = sum(number * training_flops(sizes, [shape]) for shape, number in shapes)
    epochs = updates / sum(number for _, number in shapes)
    pairs = np.concatenate([batches.pairs(0, i) for i in range(len(batches))])
    pairs = pairs[pairs >= 0]  # Negative ones are rows of padding.
    lengths = np.stack([batches.store.source_lengths, batches.store.target_lengths])[:, pairs]
    of_tokens = 3 * int(transformer_flops(sizes, *lengths).sum())
    positions = sum(number * rows * (source + target) for (rows, source, target), number in shapes)
    cost: dict[str, Any] = {
        "updates": updates,
        "flops_per_update": per_epoch * epochs / updates,
        "flops": per_epoch * epochs,
        "flops_of_tokens": of_tokens * epochs,
        "padding": 1 - int(lengths.sum()) / positions,
    }
    if seconds is not None and peak is not None:
        # MFU: counted FLOPs per second, as a share of the peak (Chowdhery et al. 2022).
        cost |= {"seconds": seconds, "peak": peak, "mfu": cost["flops"] / seconds / peak}
    return cost
