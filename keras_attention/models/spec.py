"""A Transformer's weights in the form in which the fast inference of `engine` takes them.

Every projection is one matrix, those that read the same input are joined, and the factor of the
attention's scores is multiplied into the queries' matrix. Nothing here computes with activations: the
layers are the definition of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attention.layers.decoder_block import TransformerDecoderBlock
from keras_attention.layers.encoder_block import TransformerBlock, TransformerEncoderBlock
from keras_attention.layers.multi_head_attention import MultiHeadAttention

Weights = dict[str, Any]


class Sizes(NamedTuple):
    """What fast inference must know of a model beside its weights."""

    num_heads: int
    key_dim: int
    value_dim: int
    hidden_dim: int
    vocabulary_size: int
    activation: Callable[[Any], Any]
    normalize_first: bool
    epsilon: float
    pad_token_id: int


class InferenceForm:
    """What fast inference needs to know of a `Transformer`: its sizes, weights and positions.

    Args:
        model: The model. Its weights are read when `weights` is called, not before.

    Attributes:
        model: The model.
        sizes: The facts about it that do not change.
        dtype: The dtype in which it computes.

    Example:

    >>> from keras_attention.models.transformer import Transformer
    >>> model = Transformer(11, num_layers=1, hidden_dim=8, intermediate_dim=16, num_heads=2)
    >>> weights = InferenceForm(model).weights()
    >>> tuple(weights["decoder"][0]["self_projection"]["kernel"].shape)
    (8, 24)
    """

    def __init__(self, model: Any):
        block = model.decoder_blocks[0]
        self.model = model
        self.dtype = model.compute_dtype
        self.sizes = Sizes(
            num_heads=model.num_heads,
            key_dim=block.self_attention.key_dim,
            value_dim=block.self_attention.value_dim,
            hidden_dim=model.hidden_dim,
            vocabulary_size=model.vocabulary_size,
            activation=block.activation,
            normalize_first=model.normalize_first,
            epsilon=block.layer_norm_epsilon,
            pad_token_id=model.pad_token_id,
        )

    def weights(self) -> Weights:
        """The present weights, in the dtypes in which the model keeps them.

        Returns:
            A dict of the `"table"` (V, D), of lists with a dict for each block, `"encoder"` and
            `"decoder"`, for a pre-norm model of `"encoder_norm"` and `"decoder_norm"`, and of
            `"softmax"` with a kernel (D, V) where that is not the table.
        """
        model = self.model
        weights: Weights = {
            "table": ops.convert_to_tensor(model.token_embedding.embeddings),
            "encoder": [_encoder_block(block) for block in model.encoder_blocks],
            "decoder": [_decoder_block(block) for block in model.decoder_blocks],
        }
        if model.normalize_first:
            weights["encoder_norm"] = _norm(model.encoder_normalization)
            weights["decoder_norm"] = _norm(model.decoder_normalization)
        if not model.token_embedding.tie_weights:
            kernel = ops.convert_to_tensor(model.token_embedding.reverse_embeddings)
            weights["softmax"] = {"kernel": kernel}
        return weights

    def positions(self, kind: str, length: int) -> np.ndarray:
        """The encodings (length, D) of the first positions of the `"encoder"` or the `"decoder"`."""
        layer = getattr(self.model, f"{kind}_positions")
        nothing = ops.zeros((1, length, self.sizes.hidden_dim), "float32")
        # Not `layer(nothing)`, which would round to the dtype that the model was trained in.
        return ops.convert_to_numpy(ops.cast(layer.call(nothing), "float32"))[0]


def is_plain(model: Any) -> bool:
    """Whether all blocks are those that `engine.forward` computes, and none is quantized."""
    kinds = {TransformerEncoderBlock, TransformerDecoderBlock}
    blocks = [*model.encoder_blocks, *model.decoder_blocks]
    layers = [model.token_embedding, *(layer for block in blocks for layer in _projections(block))]
    return all(type(block) in kinds for block in blocks) and all(
        layer.quantization_mode is None for layer in layers
    )


def _projections(block: TransformerBlock) -> list[Any]:
    attentions = [getattr(block, f"{kind}_attention", None) for kind in ("self", "cross")]
    layers = [block.feed_forward.inner, block.feed_forward.outer]
    for attention in filter(None, attentions):
        layers += [attention.query_dense, attention.key_dense]
        layers += [attention.value_dense, attention.output_dense]
    return layers


def _encoder_block(block: TransformerEncoderBlock) -> Weights:
    return {**_self_attention(block), **_feed_forward(block)}


def _decoder_block(block: TransformerDecoderBlock) -> Weights:
    cross = block.cross_attention
    return {
        **_self_attention(block),
        "memory_projection": _joined(cross.key_dense, cross.value_dense),
        "cross_projection": _scaled(_joined(cross.query_dense), cross.key_dim),
        "cross_output": _output(cross),
        "cross_norm": _norm(block.cross_attention_residual.normalization),
        **_feed_forward(block),
    }


def _self_attention(block: TransformerBlock) -> Weights:
    attention: MultiHeadAttention = block.self_attention
    parts = (attention.query_dense, attention.key_dense, attention.value_dense)
    return {
        "self_projection": _scaled(_joined(*parts), attention.key_dim, attention.num_heads),
        "self_output": _output(attention),
        "self_norm": _norm(block.self_attention_residual.normalization),
    }


def _feed_forward(block: TransformerBlock) -> Weights:
    return {
        "inner": _matrix(block.feed_forward.inner),
        "outer": _matrix(block.feed_forward.outer),
        "feed_forward_norm": _norm(block.feed_forward_residual.normalization),
    }


def _matrix(layer: Any, input_axes: int = 1) -> Weights:
    """A projection's kernel as `(D, F)` and its bias, if it has one, as `(F,)`."""
    kernel = ops.convert_to_tensor(layer.kernel)
    rows = int(np.prod(kernel.shape[:input_axes]))
    matrix = {"kernel": ops.reshape(kernel, (rows, -1))}
    if layer.bias is not None:
        matrix["bias"] = ops.reshape(ops.convert_to_tensor(layer.bias), (-1,))
    return matrix


def _joined(*layers: Any) -> Weights:
    """Projections of one input side by side."""
    matrices = [_matrix(layer) for layer in layers]
    return {
        name: ops.concatenate([matrix[name] for matrix in matrices], axis=-1)
        for name in matrices[0]
    }


def _scaled(matrix: Weights, key_dim: int, num_heads: int | None = None) -> Weights:
    """The columns of the queries times d_k^-1/2; they are the first `num_heads * key_dim`, or all."""
    width = matrix["kernel"].shape[-1]
    factors = np.ones(width, "float32")
    factors[: width if num_heads is None else num_heads * key_dim] = key_dim**-0.5
    return {
        name: ops.multiply(part, ops.cast(factors, part.dtype)) for name, part in matrix.items()
    }


def _output(attention: MultiHeadAttention) -> Weights:
    return _matrix(attention.output_dense, input_axes=2)


def _norm(layer: keras.layers.LayerNormalization) -> Weights:
    return {
        "gamma": ops.convert_to_tensor(layer.gamma),
        "beta": ops.convert_to_tensor(layer.beta),
    }
