"""An estimate of the memory for training a Transformer, before anything is built.

Shape letters: B batch, T target, S source, D hidden_dim, F intermediate_dim, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_attention.evaluation.cost import (
    ModelSizes,
    branch_kernels,
    check_policy,
    self_attention_pairs,
)
from keras_attention.ops.windowed_attention import window_block
from keras_attention.utils.checks import check_boolean, check_integer

_WIDTHS = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclasses.dataclass(frozen=True)
class TrainingMemory:
    """An estimate of the bytes that one device needs for training. It prints as one line.

    Attributes:
        weights: The model's variables.
        gradients: One more copy of them; two if gradients are accumulated.
        moments: Adam's two moments.
        activations: The results of the forward pass that the backward pass needs, for one batch. If blocks
            are computed again: the inputs of all blocks, and the rest of one block.
        logits: The logits over the vocabulary and their gradient, often the largest part.
    """

    weights: int
    gradients: int
    moments: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """The sum, in bytes."""
        return sum(dataclasses.asdict(self).values())

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {size / 2**30:.2f}" for name, size in dataclasses.asdict(self).items()
        )
        return f"about {self.total / 2**30:.2f} GiB, an estimate ({parts})"


def training_memory(
    model: Any,
    rows: int,
    source_length: int,
    target_length: int,
    dtype: str = "float32",
    accumulate: bool = False,
) -> TrainingMemory:
    """Estimate the memory of training on one device from the sizes of the model and its largest batch.

    Counts the arrays that a backward pass needs. It does not count the backend's workspace,
    fragmentation or compiler, and a backend may keep fewer arrays (by fusing) or more. Expect the
    real figure within a factor of two (XLA on a CPU takes 0.8 to 1.3 times the estimate).

    Args:
        model: A `Transformer`, or its arguments; see `ModelSizes.of`.
        rows: B, sentences of one batch on one device.
        source_length: S, padded.
        target_length: T, padded.
        dtype: Dtype policy of the model. Weights, gradients and moments are float32 in mixed
            precision.
        accumulate: Whether gradients are accumulated over several batches.

    Returns:
        A `TrainingMemory`.

    Example:

    >>> from keras_attention.models import PRESETS
    >>> base = {**PRESETS["base"], "vocabulary_size": 37000}
    >>> print(training_memory(base, rows=128, source_length=32, target_length=32))  # doctest: +ELLIPSIS
    about ... GiB, an estimate (weights 0.23, gradients 0.23, moments 0.47, activations ..., logits 1.13)
    """
    check_integer("rows", rows, 1)
    check_integer("source_length", source_length, 1)
    check_integer("target_length", target_length, 1)
    check_boolean("accumulate", accumulate)
    policy = check_policy("dtype", dtype)
    sizes = ModelSizes.of(model)
    width = _WIDTHS[policy.compute_dtype]
    weights = sizes.parameters * _WIDTHS[policy.variable_dtype]
    row = _kept_numbers(sizes, source_length, target_length)
    logits = 2 * rows * target_length * sizes.output_size
    return TrainingMemory(
        weights=weights,
        gradients=weights * (2 if accumulate else 1),
        moments=2 * weights,
        activations=(rows * row + _kept_once(sizes)) * width,
        logits=logits * width,
    )


def _kept_numbers(sizes: ModelSizes, source: int, target: int) -> int:
    """Return how many values of a row the forward pass keeps for the backward pass, without the logits."""
    d, heads = sizes.hidden_dim, sizes.num_heads
    copies = 3 if sizes.attention_dropout else 2  # scores and weights, and weights dropped

    def attention(queries: int, keys: int, pairs: int) -> int:
        queries_and_context = queries * heads * (sizes.key_dim + sizes.value_dim)
        keys_and_values = keys * heads * (sizes.key_dim + sizes.value_dim)
        return queries_and_context + keys_and_values + copies * heads * pairs

    def self_attention(positions: int, causal: bool) -> int:
        window = sizes.attention_window
        pairs = self_attention_pairs(positions, window, causal)
        # With a window, each block has a copy of the keys and values that it sees.
        seen = positions if pairs == positions**2 else pairs // window_block(window or 1)
        return attention(positions, seen, pairs)

    def residual(positions: int) -> int:
        return 3 * positions * d  # what was dropped, the normalised sum, the output

    def feed_forward(positions: int) -> int:
        return positions * sizes.intermediate_dim

    # Attention and network of a branched layer share one residual connection.
    fewer = 0 if sizes.branch_feed_forward is None else 1
    encoder = self_attention(source, False) + feed_forward(source) + (2 - fewer) * residual(source)
    # Of an SSRU: both gates, the product that they weigh, what the scan adds, and the states.
    own = 5 * target * d if sizes.decoder_cell == "ssru" else self_attention(target, True)
    decoder = own + attention(target, source, target * source)
    decoder += feed_forward(target) + (3 - fewer) * residual(target)
    first, second = sizes.depths
    embedded = d * (source + target)
    if sizes.recompute:
        return d * (first * source + second * target) + embedded + max(encoder, decoder)
    return first * encoder + second * decoder + embedded


def _kept_once(sizes: ModelSizes) -> int:
    """Return the number of values that are kept for a batch of any size: the kernels of branches."""
    blocks = 2 if sizes.recompute else sum(sizes.depths)
    return blocks * branch_kernels(sizes)
