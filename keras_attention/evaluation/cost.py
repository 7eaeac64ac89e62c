"""What training a Transformer costs: counted FLOPs, the Table 2 figure, the share of a peak.

Shape letters: B batch, T target, S source, D hidden_dim, F intermediate_dim, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

# Sustained single-precision FLOP/s of a GPU, as in the footnote of section 6.1 of the paper.
SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}


@dataclasses.dataclass(frozen=True)
class ModelSizes:
    """The sizes that decide what a Transformer costs; `ModelSizes.of` reads them from a model.

    Attributes:
        vocabulary_size: V.
        num_layers: Blocks in each stack, the paper's N.
        hidden_dim: D.
        intermediate_dim: F.
        num_heads: h.
        key_dim: Width of a head's queries and keys, d_k.
        value_dim: Width of a head's values, d_v.
        use_attention_bias: Whether attention projections have biases.
        normalize_first: Whether there is a last normalisation after each stack.
        tie_weights: Whether the softmax uses the embeddings' table.
        learned_positions: Number of learned positions; 0 with sinusoids.
        attention_dropout: Rate on the attention weights; any keeps one more copy of them.
        recompute: Whether training computes blocks again instead of keeping what they need.
    """

    vocabulary_size: int
    num_layers: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    key_dim: int
    value_dim: int
    use_attention_bias: bool = False
    normalize_first: bool = False
    tie_weights: bool = True
    learned_positions: int = 0
    attention_dropout: float = 0.0
    recompute: bool = False

    @classmethod
    def of(cls, model: Any) -> ModelSizes:
        """Sizes of a `Transformer`, or of the arguments of one in a mapping, such as a preset's.

        Args:
            model: A `Transformer`, a mapping of its arguments (with `vocabulary_size`), or sizes.

        Raises:
            ValueError: If a size is absent.

        >>> from keras_attention.models import PRESETS
        >>> ModelSizes.of({**PRESETS["base"], "vocabulary_size": 37000}).key_dim
        64
        """
        if isinstance(model, cls):
            return model
        config = model if isinstance(model, Mapping) else model.get_config()
        required = (
            "vocabulary_size",
            "num_layers",
            "hidden_dim",
            "intermediate_dim",
            "num_heads",
        )
        absent = [name for name in required if name not in config]
        if absent:
            raise ValueError(
                "The cost of a model needs the sizes "
                f"{', '.join(required)}. Absent: {', '.join(absent)}. Pass a Transformer, or the "
                "arguments of one: {**PRESETS[name], 'vocabulary_size': ...}."
            )
        key_dim = config.get("key_dim") or config["hidden_dim"] // config["num_heads"]
        learned = config.get("position_layout") == "learned"
        return cls(
            **{name: config[name] for name in required},
            key_dim=key_dim,
            value_dim=config.get("value_dim") or key_dim,
            use_attention_bias=config.get("use_attention_bias", False),
            normalize_first=config.get("normalize_first", False),
            tie_weights=config.get("tie_weights", True),
            learned_positions=config.get("max_length", 256) if learned else 0,
            attention_dropout=config.get("attention_dropout", 0.0),
            recompute=config.get("recompute", False),
        )

    @property
    def parameters(self) -> int:
        """Number of trainable parameters: one table for source, target and, if tied, softmax."""
        d, heads = self.hidden_dim, self.num_heads
        attention = 2 * d * heads * (self.key_dim + self.value_dim)
        if self.use_attention_bias:
            attention += 2 * heads * self.key_dim + heads * self.value_dim + d
        feed_forward = 2 * d * self.intermediate_dim + self.intermediate_dim + d
        layer = 3 * attention + 2 * feed_forward + 5 * 2 * d  # five normalisations
        last = 4 * d if self.normalize_first else 0
        positions = 2 * self.learned_positions * d
        tables = 1 if self.tie_weights else 2
        return tables * self.vocabulary_size * d + self.num_layers * layer + last + positions


def transformer_flops(model: Any, source_length: Any, target_length: Any) -> Any:
    """FLOPs of the forward pass of one row: 2 m n k of every matrix product.

    Counted are the projections, attention scores and their products with the values, feed-forward
    networks and the projection to the vocabulary. Not counted: look-ups, normalisation, softmax,
    residuals and dropout, which are no matrix products and well below 1 % of the base model. Causal
    attention counts in full, as it is computed.

    The FLOPs of positions that are computed come from padded lengths, those of real tokens alone
    from the sentences' own lengths.

    Args:
        model: A `Transformer`, or its arguments; see `ModelSizes.of`.
        source_length: S, end token counted: an int, or an integer array with one entry a row.
        target_length: T, likewise.

    Returns:
        An int, or an int64 array of the FLOPs of each row.

    Example:

    >>> from keras_attention.models import PRESETS
    >>> base = {**PRESETS["base"], "vocabulary_size": 37000}
    >>> f"{transformer_flops(base, 25, 25) / 25:.3g} FLOPs for a source and a target token"
    '1.27e+08 FLOPs for a source and a target token'
    """
    sizes = ModelSizes.of(model)
    d, heads = sizes.hidden_dim, sizes.num_heads
    widths = heads * (sizes.key_dim + sizes.value_dim)
    source, target = (
        _length("source_length", source_length),
        _length("target_length", target_length),
    )

    def attention(queries: Any, keys: Any) -> Any:
        # W^Q and W^O at each query, W^K and W^V at each key, then Q K^T and its product with V.
        return 2 * d * widths * (queries + keys) + 2 * widths * queries * keys

    def feed_forward(positions: Any) -> Any:
        return 4 * d * sizes.intermediate_dim * positions

    encoder = attention(source, source) + feed_forward(source)
    decoder = attention(target, target) + attention(target, source) + feed_forward(target)
    return sizes.num_layers * (encoder + decoder) + 2 * d * sizes.vocabulary_size * target


def training_flops(model: Any, shapes: Iterable[tuple[int, int, int]]) -> int:
    """FLOPs of training on batches: three times the forward pass (Kaplan et al. 2020).

    The backward pass multiplies each matrix twice: for the gradient of either factor.

    Args:
        model: A `Transformer`, or its arguments; see `ModelSizes.of`.
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
    return 3 * sum(rows * transformer_flops(sizes, s, t) for rows, s, t in shapes)


def paper_training_cost(seconds: float, devices: int = 8, device: str = "P100") -> float:
    """Training cost as in Table 2: time, times GPUs, times the sustained FLOP/s of one.

    This is what the GPUs could have computed in that time, not what the model needed. For the base
    model it is more than three times the FLOPs that `training_flops` counts.

    Args:
        seconds: Wall-clock seconds of training.
        devices: Number of GPUs.
        device: `"K80"`, `"K40"`, `"M40"` or `"P100"`, with the paper's sustained 2.8, 3.7, 6.0 and
            9.5 TFLOPS.

    Returns:
        The cost in FLOPs.

    Raises:
        ValueError: If the device is none of the paper's, or an amount is negative.

    Example:

    >>> paper_training_cost(12 * 3600)  # the base model: 12 hours on 8 P100
    3.2832e+18
    """
    if device not in SUSTAINED_FLOPS:
        raise ValueError(
            f"The paper gives the sustained speed of {', '.join(SUSTAINED_FLOPS)}. "
            f"Received: device={device!r}. For another one, multiply seconds, devices and its "
            "FLOP/s, such as `matmul_peak()` measures."
        )
    if seconds < 0 or devices < 1:
        raise ValueError(
            "`seconds` must not be negative and `devices` at least 1. Received: "
            f"seconds={seconds!r}, devices={devices!r}"
        )
    return float(seconds) * devices * SUSTAINED_FLOPS[device]


def matmul_peak(dtype: str = "float32", seconds: float = 1.0) -> float:
    """Measured FLOP/s of large matrix products on one device: the ceiling of what training can reach.

    Multiplies square matrices of growing size on the current backend until the time is used or a
    product fills the device, and takes the best rate. Other programs on the machine lower it. If the
    backend chooses a lower precision by itself, such as TF32 on newer GPUs, that counts as `dtype`.

    Args:
        dtype: A floating-point dtype, or a Keras dtype policy: the compute dtype of it is taken.
        seconds: About how long to measure.

    Returns:
        FLOP/s. Divide a counted rate by it for the share of the peak, MFU.

    Example:

    >>> matmul_peak(seconds=0.05) > 1e6
    True
    """
    compute_dtype = keras.dtype_policies.get(dtype).compute_dtype
    best, size, ends = 0.0, 256, time.perf_counter() + seconds
    while size <= 8192:
        values = np.random.default_rng(size).standard_normal((size, size), "float32")
        # Divided by the root of the size: products of products stay of order 1.
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


def flops_utilization(flops: float, seconds: float, peak: float) -> float:
    """MFU: counted FLOPs a second, as a share of the peak (Chowdhery et al. 2022).

    Args:
        flops: Counted FLOPs of the work, as `training_flops` gives.
        seconds: How long it took.
        peak: FLOP/s of all devices together, as `matmul_peak` measures for one.

    Returns:
        The share, 1 for the peak.

    >>> flops_utilization(3e12, seconds=2.0, peak=6e12)
    0.25
    """
    if seconds <= 0 or peak <= 0:
        raise ValueError(
            f"`seconds` and `peak` must be positive. Received: seconds={seconds!r}, peak={peak!r}"
        )
    return flops / seconds / peak


def _seconds_of_products(matrix: Any, count: int) -> float:
    start, product = time.perf_counter(), matrix
    for _ in range(count):
        product = ops.matmul(product, matrix)
    ops.convert_to_numpy(ops.cast(product[0, 0], "float32"))  # waits for the device
    return time.perf_counter() - start


def _length(name: str, length: Any) -> Any:
    """A length as a Python int, which does not overflow, or an int64 array."""
    array = np.asarray(length)
    if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise ValueError(f"`{name}` must hold integers of at least 0. Received: {length!r}")
    return int(array) if array.ndim == 0 else array.astype("int64")
