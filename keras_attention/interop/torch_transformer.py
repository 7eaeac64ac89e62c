"""Read the weights of PyTorch's `torch.nn.Transformer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_attention.interop.foreign import TorchArrays, attention_of
from keras_attention.spec import parts
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.arguments import Count, checked

EPSILON = 1e-5  # PyTorch's default


@checked
def read_torch(
    state_dict: Mapping[str, Any],
    embedding: parts.EmbeddingSpec,
    num_heads: Count,
    *,
    normalize_first: bool = False,
    positions: parts.PositionsSpec | None = None,
    **options: Any,
) -> TransformerSpec:
    """Return the spec of a `torch.nn.Transformer` inside a model of the user's own.

    PyTorch has neither embeddings, nor positions, nor a softmax: the user's are arguments.

    Args:
        state_dict: `model.state_dict()` of the `torch.nn.Transformer`, or NumPy arrays by the same names.
        embedding: The table for source, target and softmax. (A token's embedding is its row times
            `sqrt(hidden_dim)`: divide the rows by it if the model does not multiply.)
        num_heads: Its `nhead`.
        normalize_first: Its `norm_first`. Defaults to False.
        positions: The positional encodings. Defaults to those of the paper.
        **options: `activation` (`"relu"` by default), `layer_norm_epsilon` (1e-5), and the fields of
            `TransformerSpec`: `target_embedding`, `start_token_id`, `end_token_id`,
            `suppressed_token_ids`.

    Raises:
        ValueError: If a weight is missing, or they do not fit together.

    Example:

    >>> import torch  # doctest: +SKIP
    >>> theirs = torch.nn.Transformer(16, 4, 2, 2, 32, batch_first=True)  # doctest: +SKIP
    >>> from keras_attention.spec import EmbeddingSpec
    >>> table = EmbeddingSpec(np.random.normal(size=(11, 16)).astype("float32"))
    >>> spec = read_torch(theirs.state_dict(), table, num_heads=4)  # doctest: +SKIP
    """
    arrays = {name: parts.as_array(weight) for name, weight in state_dict.items()}
    weights = TorchArrays(arrays, lambda problem: ValueError(f"`state_dict`: {problem}."))
    activation = options.pop("activation", "relu")
    epsilon = options.pop("layer_norm_epsilon", EPSILON)
    positions = parts.PositionsSpec() if positions is None else positions

    def block(name: str) -> parts.BlockSpec:
        linear1, linear2 = (weights.dense(f"{name}.linear{i}") for i in (1, 2))
        if linear1.bias is None or linear2.bias is None:
            raise parts.SpecError(
                "The `torch.nn.Transformer` has bias=False; a feed-forward network and a layer "
                "normalisation have biases here."
            )
        is_decoder = weights.has(f"{name}.norm3.weight")
        cross = _attention(weights, f"{name}.multihead_attn", num_heads) if is_decoder else None
        return parts.BlockSpec(
            _attention(weights, f"{name}.self_attn", num_heads),
            weights.norm(f"{name}.norm1", epsilon),
            parts.FeedForwardSpec(linear1, linear2, activation),
            weights.norm(f"{name}.norm{3 if is_decoder else 2}", epsilon),
            cross,
            weights.norm(f"{name}.norm2", epsilon) if is_decoder else None,
            normalize_first,
        )

    def stack(kind: str) -> parts.StackSpec:
        layers, norm = f"{kind}.layers", f"{kind}.norm"
        blocks = tuple(block(f"{layers}.{i}") for i in range(weights.depth(layers)))
        # `Transformer` always has one; `TransformerEncoder` alone may have none.
        final = weights.norm(norm, epsilon) if weights.has(f"{norm}.weight") else None
        return parts.StackSpec(positions, blocks, final)

    spec = TransformerSpec(embedding, stack("encoder"), stack("decoder"), **options)
    weights.refuse_unread()
    spec.validate()
    return spec


def _attention(weights: TorchArrays, name: str, num_heads: int) -> Any:
    joined = weights.array(f"{name}.in_proj_weight", 2)
    kernels = np.split(joined, 3) if not len(joined) % 3 else [joined] * 3
    bias = weights.optional(f"{name}.in_proj_bias", 1)
    biases = [None] * 3 if bias is None else np.split(bias, 3)
    maps = [
        parts.DenseSpec(np.ascontiguousarray(k.T), b) for k, b in zip(kernels, biases, strict=True)
    ]
    return attention_of([*maps, weights.dense(f"{name}.out_proj")], num_heads)
