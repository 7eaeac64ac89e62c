"""The cost of training a Transformer: counted FLOPs, and the share of a device's peak.

Shape letters: B batch, T target, S source, D hidden_dim, F intermediate_dim, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import keras
import numpy as np
from keras import ops

from keras_attention.utils.arguments import Count, FromZero, Has, Positive, checked
from keras_attention.utils.checks import check_depths, check_has, depths_of


@dataclasses.dataclass(frozen=True)
class ModelSizes:
    """The sizes that decide the FLOPs of a Transformer, mostly by the names of its arguments.

    `depths` are the blocks of encoder and decoder, `output_size` the number of tokens that have a logit.
    """

    depths: tuple[int, int]
    output_size: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    key_dim: int
    value_dim: int
    decoder_cell: str = "attention"
    gated_feed_forward: bool = False

    @classmethod
    def of(cls, model: Any) -> ModelSizes:
        """Return the sizes of a `Transformer`, or of its arguments in a mapping."""
        if isinstance(model, cls):
            return model
        if not isinstance(model, Mapping):
            check_has("model", model, "a Transformer, or its arguments", "get_config")
        config = model if isinstance(model, Mapping) else model.get_config()
        required = ("vocabulary_size", "num_layers", "hidden_dim", "intermediate_dim", "num_heads")
        absent = [name for name in required if name not in config]
        if absent:
            raise ValueError(
                "The cost of a model needs the sizes "
                f"{', '.join(required)}. Absent: {', '.join(absent)}. Pass a Transformer, or the "
                "arguments of one: {**PRESETS[name], 'vocabulary_size': ...}."
            )
        key_dim = config.get("key_dim") or config["hidden_dim"] // config["num_heads"]
        derived = {
            "depths": depths_of(check_depths("num_layers", config["num_layers"])),
            "output_size": config.get("target_vocabulary_size") or config["vocabulary_size"],
            "key_dim": key_dim,
            "value_dim": config.get("value_dim") or key_dim,
        }
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: config[name] for name in names & {*config}} | derived)


def transformer_flops(model: Any, source_length: Any, target_length: Any) -> Any:
    """FLOPs of the forward pass of one row: 2 m n k of every matrix product.

    This counts the projections, attention scores and their products with the values, feed-forward networks
    and the projection to the vocabulary. It does not count look-ups, normalisation, softmax, residuals and
    dropout: they are not matrix products, and well below 1 % of the base model. Causal attention counts in
    full, and so does attention within a window, which is a mask. An SSRU counts its two products. A
    Weighted Transformer counts as the plain one of its sizes.

    Pass padded lengths to count all positions that are computed, or the sentences' own lengths to count
    only real tokens.

    Args:
        model: A `Transformer`, or a mapping of its arguments, such as a preset with a `vocabulary_size`.
        source_length: S, end token counted: an int, or an integer array with one entry per row.
        target_length: T, likewise.

    Returns:
        An int, or an int64 array of the FLOPs of each row.

    Example:

    >>> from keras_attention.models import PRESETS
    >>> base = {**PRESETS["base"], "vocabulary_size": 37000}
    >>> f"{transformer_flops(base, 25, 25) / 25:.3g} FLOPs for a source and a target token"
    '1.27e+08 FLOPs for a source and a target token'
    """
    return sum(flops_by_part(model, source_length, target_length).values())


def flops_by_part(model: Any, source_length: Any, target_length: Any) -> dict[str, Any]:
    """Return the FLOPs of each part of the model; `transformer_flops` is their sum.

    >>> from keras_attention.models import PRESETS
    >>> base = {**PRESETS["base"], "vocabulary_size": 37000}
    >>> flops_by_part(base, 7, 5)["encoder: scores and sums"] == 6 * 2 * 2 * 512 * 7 * 7
    True
    """
    sizes = ModelSizes.of(model)
    d = sizes.hidden_dim
    encoder, decoder = sizes.depths
    widths = sizes.num_heads * (sizes.key_dim + sizes.value_dim)
    source = _length("source_length", source_length)
    target = _length("target_length", target_length)

    def projections(queries: Any, keys: Any) -> Any:
        # W^Q and W^O at each query, W^K and W^V at each key.
        return 2 * d * widths * (queries + keys)

    def scores(pairs: Any) -> Any:
        return 2 * widths * pairs

    def feed_forward(positions: Any) -> Any:
        products = 3 if sizes.gated_feed_forward else 2
        return 2 * products * d * sizes.intermediate_dim * positions

    if sizes.decoder_cell == "ssru":
        own = {"decoder: SSRU": decoder * 2 * 2 * d * d * target}
    else:
        own = {
            "decoder: projections, self": decoder * projections(target, target),
            "decoder: scores and sums, self": decoder * scores(target * target),
        }
    cross = projections(target, source)
    return {
        "encoder: projections": encoder * projections(source, source),
        "encoder: scores and sums": encoder * scores(source * source),
        "encoder: feed-forward": encoder * feed_forward(source),
        **own,
        "decoder: projections, cross": decoder * cross,
        "decoder: scores and sums, cross": decoder * scores(target * source),
        "decoder: feed-forward": decoder * feed_forward(target),
        "softmax": 2 * d * sizes.output_size * target,
    }


@checked
def training_flops(model: Any, shapes: Iterable[tuple[FromZero, FromZero, FromZero]]) -> int:
    """FLOPs of training on batches: three times the forward pass (Kaplan et al. 2020).

    The backward pass has two matrix products for each one: one for the gradient of each factor. Computation
    that is repeated to save memory does not count.

    Args:
        model: A `Transformer`, or a mapping of its arguments, such as a preset with a `vocabulary_size`.
        shapes: A (B, S, T) for each batch, padding included, such as `TokenBatches` gives.

    Returns:
        The FLOPs of all positions computed, padding included.

    Example:

    >>> from keras_attention.models import PRESETS
    >>> base = {**PRESETS["base"], "vocabulary_size": 37000}
    >>> f"{100_000 * training_flops(base, [(1000, 25, 25)]):.2g}"  # the base model's 100,000 updates
    '9.5e+17'
    """
    sizes = ModelSizes.of(model)
    total = 0
    for rows, source, target in shapes:
        total += rows * transformer_flops(sizes, source, target)
    return 3 * total


@checked
def matmul_peak(dtype: str = "float32", seconds: Positive = 1.0) -> float:
    """Measured FLOP/s of large matrix products on one device: the upper limit for training.

    Multiplies square matrices of growing size on the current backend until the time is used up or a product
    fills the device, and returns the best rate. Other programs on the machine lower it. If the backend
    itself chooses a lower precision, such as TF32 on newer GPUs, that rate is returned.

    Args:
        dtype: A floating-point dtype, or a Keras dtype policy, whose compute dtype is used.
        seconds: About how long to measure.

    Returns:
        FLOP/s. A counted rate divided by this is the share of the peak, MFU.

    Example:

    >>> matmul_peak(seconds=0.05) > 1e6
    True
    """
    compute_dtype = check_policy("dtype", dtype).compute_dtype
    best, size, ends = 0.0, 256, time.perf_counter() + seconds
    while size <= 8192:
        values = np.random.default_rng(size).standard_normal((size, size), "float32")
        # Divided by the square root of the size, so that repeated products stay of order 1.
        matrix = ops.cast(
            ops.convert_to_tensor(values / np.float32(math.sqrt(size))), compute_dtype
        )
        elapsed = _seconds_of_products(matrix, 1)  # warms up
        count = max(1, min(50, int(seconds / 8 / max(elapsed, 1e-6))))
        for _ in range(3):
            elapsed = _seconds_of_products(matrix, count)
            best = max(best, count * 2 * size**3 / elapsed)
            if time.perf_counter() > ends:
                return best
        size *= 2
    return best


def _seconds_of_products(matrix: Any, count: int) -> float:
    start, product = time.perf_counter(), matrix
    for _ in range(count):
        product = ops.matmul(product, matrix)
    ops.convert_to_numpy(ops.cast(product[0, 0], "float32"))  # waits for the device
    return time.perf_counter() - start


def check_policy(name: str, dtype: Any) -> keras.DTypePolicy:
    """Return the dtype policy of this name; raises ValueError if there is none."""
    try:
        if dtype is not None:
            return keras.dtype_policies.get(dtype)
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"`{name}` must be a floating-point dtype or a Keras dtype policy, such as 'float32' or "
        f"'mixed_bfloat16'. Received: {name}={dtype!r}"
    )


def _length(name: str, length: Any) -> Any:
    """Return a length as a Python int, which does not overflow, or an int64 array."""
    array = np.asarray(length)
    if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise ValueError(f"`{name}` must hold integers of at least 0. Received: {length!r}")
    return int(array) if array.ndim == 0 else array.astype("int64")


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
