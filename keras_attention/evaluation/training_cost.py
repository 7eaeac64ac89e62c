"""The cost of a training run: counted, and by the formula of the paper's Table 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_attention.evaluation.cost import (
    SUSTAINED_FLOPS,
    ModelSizes,
    flops_utilization,
    training_flops,
    transformer_flops,
)
from keras_attention.utils.checks import check_choice, check_has, check_integer, check_number


def training_cost(
    model: Any,
    batches: Any,
    updates: int,
    *,
    seconds: float | None = None,
    devices: int = 1,
    device: str | None = None,
    peak: float | None = None,
) -> dict[str, Any]:
    """Return the cost of a run, for `evaluation_report`.

    Counted FLOPs are those of an epoch's batches, padding included, times the number of epochs. The paper's
    formula is time times devices times the sustained FLOP/s of one device: known for the paper's GPUs,
    measured by `matmul_peak` for others.

    Args:
        model: A `Transformer`, or its arguments; see `ModelSizes.of`.
        batches: `TokenBatches` of the training part.
        updates: Number of optimizer updates.
        seconds: Wall-clock seconds of training; without them, FLOPs are only counted.
        devices: Number of devices.
        device: A GPU of the paper: `"K80"`, `"K40"`, `"M40"` or `"P100"`. None for this machine.
        peak: FLOP/s of one device, as `matmul_peak` measures; needed with `seconds` and no `device`.

    Returns:
        A dict: `updates`, `flops_per_update`, `flops`, `flops_of_tokens`, `padding` (share of the
        positions) and, with `seconds`, `seconds`, `devices`, `sustained_flops`, `sustained_name`,
        `paper_flops`, `paper_formula`, `mfu`.

    Raises:
        ValueError: If the speed of the device is unknown, or a number is too small.
    """
    check_integer("updates", updates, 1)
    check_integer("devices", devices, 1)
    check_has("batches", batches, "TokenBatches", "shape_statistics", "pairs")
    for name, value in (("seconds", seconds), ("peak", peak)):
        if value is not None:
            check_number(name, value, above=0)
    if device is not None:
        check_choice("device", device, tuple(SUSTAINED_FLOPS))
    sizes = ModelSizes.of(model)
    shapes = [(shape["shape"], shape["batches"]) for shape in batches.shape_statistics()]
    per_epoch = sum(number * training_flops(sizes, [shape]) for shape, number in shapes)
    epochs = updates / sum(number for _, number in shapes)
    pairs = np.concatenate([batches.pairs(0, i) for i in range(len(batches))])
    pairs = pairs[pairs >= 0]  # Negative ones are rows of padding.
    lengths = np.stack([batches.store.source_lengths, batches.store.target_lengths])[:, pairs]
    of_tokens = 3 * int(transformer_flops(sizes, *lengths).sum())
    positions = sum(number * rows * (source + target) for (rows, source, target), number in shapes)
    cost = {
        "updates": updates,
        "flops_per_update": per_epoch * epochs / updates,
        "flops": per_epoch * epochs,
        "flops_of_tokens": of_tokens * epochs,
        "padding": 1 - int(lengths.sum()) / positions,
    }
    if seconds is not None:
        cost |= _by_the_formula(cost["flops"], seconds, devices, device, peak)
    return cost


def _by_the_formula(
    flops: float, seconds: float, devices: int, device: str | None, peak: float | None
) -> dict[str, Any]:
    if device is not None:
        sustained, name = SUSTAINED_FLOPS[device], f"the paper's sustained FLOP/s of a {device}"
    elif peak is not None:
        sustained, name = peak, "the measured FLOP/s of large matrix products on a device"
    else:
        raise ValueError(
            "The paper's formula needs the FLOP/s of a device: pass `device` (one of "
            f"{', '.join(SUSTAINED_FLOPS)}) or `peak`, such as `matmul_peak()` measures."
        )
    return {
        "seconds": seconds,
        "devices": devices,
        "sustained_flops": sustained,
        "sustained_name": f"{name}, {sustained:.3g}",
        "paper_flops": seconds * devices * sustained,
        "paper_formula": f"{seconds:,.0f} s x {devices} device(s) x {sustained:.3g} FLOP/s ({name})",
        "mfu": flops_utilization(flops, seconds, devices * sustained),
    }
