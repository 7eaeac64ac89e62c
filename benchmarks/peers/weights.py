"""One set of weights for every program, and the names that they are exported under."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

ATTENTION = ("query", "key", "value", "attention_output")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a Transformer, by the names of this package; one table for source, target and softmax."""

    vocabulary_size: int
    num_layers: int
    hidden_dim: int
    intermediate_dim: int
    num_heads: int
    dropout: float = 0.1

    def as_options(self) -> dict[str, Any]:
        """Return the arguments of `keras_attention.Transformer`."""
        return dataclasses.asdict(self)


def weight_shapes(sizes: Sizes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every weight; kernels are (inputs, outputs), the heads side by side.

    Example:

    >>> names = dict(weight_shapes(Sizes(11, 1, 4, 6, 2)))
    >>> names["encoder_block_1/self_attention/query/kernel"], names["token_embedding/embeddings"]
    ((4, 4), (11, 4))
    """
    width, inner = sizes.hidden_dim, sizes.intermediate_dim
    yield "token_embedding/embeddings", (sizes.vocabulary_size, width)
    for kind, attentions in (
        ("encoder", ["self_attention"]),
        ("decoder", ["self_attention", "cross_attention"]),
    ):
        for block in (f"{kind}_block_{number + 1}" for number in range(sizes.num_layers)):
            for attention in attentions:
                for name in ATTENTION:
                    yield f"{block}/{attention}/{name}/kernel", (width, width)
            yield f"{block}/feed_forward/inner/kernel", (width, inner)
            yield f"{block}/feed_forward/inner/bias", (inner,)
            yield f"{block}/feed_forward/outer/kernel", (inner, width)
            yield f"{block}/feed_forward/outer/bias", (width,)
            for part in (*attentions, "feed_forward"):
                for name in ("gamma", "beta"):
                    yield f"{block}/{part}_residual/normalization/{name}", (width,)


def make_weights(sizes: Sizes, seed: int = 1) -> dict[str, np.ndarray]:
    """Every weight by its name, float32, the same on every machine.

    The row of the padding token is zero: some programs keep it so, others look up zeros for it. Biases
    and normalisations are not at their usual start of 0 and 1, so that one put in the wrong place shows.
    """
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(sizes):
        values = random.standard_normal(shape, "float32")
        if name.endswith("embeddings"):
            values *= np.float32(sizes.hidden_dim**-0.5)
            values[0] = 0.0
        elif name.endswith("kernel"):
            values *= np.float32((2.0 / sum(shape)) ** 0.5)
        else:
            values = np.float32(0.1) * values + np.float32(name.endswith("gamma"))
        weights[name] = values
    return weights


def take(weights: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the weight of that name in another shape, or raise an error that says what is there."""
    if name not in weights or weights[name].size != np.prod(shape, dtype=int):
        there = f"of shape {weights[name].shape}" if name in weights else "not there"
        raise ValueError(
            f"The program has a weight {name!r} of shape {tuple(shape)}; in the common set it is {there}. "
            "Its architecture is another: tell `peers.training` how to map it."
        )
    return weights[name].reshape(shape)
