"""What a model's attention does with the positions that it reads, beside how much it reads of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops

from keras_attention.layers.multi_head_attention import MultiHeadAttention


class AttentionDetails(NamedTuple):
    """What `Transformer.attention_details` returns.

    Attributes:
        scores: The weights, as `Transformer.attention_scores` returns them.
        value_norms: By kind, for each layer the norms of the transformed values `(R, N, S)`, float32. A kind
            is absent if a layer of it does not sum transformed values, as a Weighted Transformer's branches.
        logits: Of the next token at each target position, as `Transformer.decode_step` returns them,
            `(R, T, V)`, of the first R sentences.
    """

    scores: dict[str, list[Any]]
    value_norms: dict[str, list[Any]]
    logits: Any


def value_norms(layer: Any, inputs: Any) -> Any:
    """Return the norm of what each head makes of each position before it is weighted, (B, N, S); or None.

    The output of attention is a sum over heads and positions of weight times `f(x) = (x W_V + b_V) W_O`, with
    the head's part of both matrices. So the weight times the norm of `f(x)` is the length of the vector that
    a position contributes. None of a layer that is no plain multi-head attention.

    Reference: Kobayashi et al. 2020, [Attention is Not Only a Weight: Analyzing Transformers with Vector
    Norms](https://arxiv.org/abs/2004.10102), equations 3 to 5.
    """
    # A subclass, a gate or a quantized kernel computes something else.
    if type(layer) is not MultiHeadAttention or getattr(layer, "_use_gate", False):
        return None
    if layer.output_dense.quantization_mode is not None:
        return None
    values = ops.stop_gradient(layer.project_key_value(inputs)["value"])
    kernel = ops.cast(ops.stop_gradient(layer.output_dense.kernel), "float32")
    # With W_O^T = Q R, a vector's length after W_O is that after R^T: U numbers in place of D, and no
    # differences of squares, as a Gram matrix has.
    _, triangle = ops.qr(ops.transpose(kernel, (0, 2, 1)))
    turned = ops.einsum("bsnu,nku->bnsk", ops.cast(values, "float32"), triangle)
    return ops.sqrt(ops.sum(ops.square(turned), axis=-1))


def norms_by_kind(
    read: dict[str, list[tuple[Any, Any]]], rows: int | None = None
) -> dict[str, list[Any]]:
    """Return the value norms of all layers in the first sentences, from each layer and what it read."""
    found = {
        kind: [value_norms(layer, inputs[:rows]) for layer, inputs in layers]
        for kind, layers in read.items()
    }
    return {kind: norms for kind, norms in found.items() if all(each is not None for each in norms)}
