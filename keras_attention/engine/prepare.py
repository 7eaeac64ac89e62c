"""A spec's weights as the matrices that engines multiply with.

Every projection is one matrix, those that read the same input are joined, and the factor of the
attention's scores is multiplied into the queries' columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from keras_attention.spec import AttentionSpec, BlockSpec, DenseSpec, SSRUSpec, TransformerSpec
from keras_attention.spec.transformer import SUPPRESSED


class Matrix(NamedTuple):
    """A product's weights: a kernel (inputs, outputs) and a bias (outputs,), or None."""

    kernel: Any
    bias: Any = None


class BlockWeights(NamedTuple):
    """The weights of a block, each as an engine's operations take it."""

    self_projection: Any  # to queries, keys and values; of a cell to its input and forget gate
    self_output: Any  # None of a cell
    self_norm: Any
    inner: Any = None  # to the hidden layer, and behind it to its gate if there is one
    outer: Any = None
    feed_forward_norm: Any = None
    memory_projection: Any = None  # of the encoder's output, to keys and values
    cross_projection: Any = None  # to queries
    cross_output: Any = None
    cross_norm: Any = None


class StackWeights(NamedTuple):
    """The weights of the encoder or the decoder."""

    blocks: tuple[BlockWeights, ...]
    norm: Any = None
    embedding_norm: Any = None


class Weights(NamedTuple):
    """The weights of a Transformer."""

    source: Any  # the table that the encoder looks tokens up in; None where the target's serves
    target: Any
    softmax: Any
    encoder: StackWeights
    decoder: StackWeights


def prepare(spec: TransformerSpec, store: Any) -> Weights:
    """Return the present weights of a spec, stored as an engine wants them.

    `store` has `read`, which returns a weight of the spec as an array of its library `ops`, and a method for
    each kind of weights; see `Operations`.
    """
    target = spec.output_embedding
    table, kernel = store.read(target.embeddings), target.reverse_embeddings
    stacks = [
        StackWeights(
            tuple(_block(block, store) for block in stack.blocks),
            *(each and store.prepare_norm(each) for each in (stack.norm, stack.embedding_norm)),
        )
        for stack in (spec.encoder, spec.decoder)
    ]
    return Weights(
        None
        if spec.target_embedding is None
        else store.prepare_table(store.read(spec.embedding.embeddings)),
        store.prepare_table(table),
        store.prepare_softmax(
            table, None if kernel is None else store.read(kernel), _logits_bias(spec, store)
        ),
        *stacks,
    )


def _logits_bias(spec: TransformerSpec, store: Any) -> Any:
    """Return `TransformerSpec.decoding_bias`, computed by the store's library if it has weights."""
    bias, size = spec.output_embedding.logits_bias, spec.target_vocabulary_size
    if bias is None:
        return spec.decoding_bias()
    is_suppressed = np.isin(np.arange(size), spec.suppressed_token_ids)
    bias = store.read(bias)
    return store.ops.where(is_suppressed, SUPPRESSED, bias) if is_suppressed.any() else bias


def _block(block: BlockSpec, store: Any) -> BlockWeights:
    own, cross, network = block.self_attention, block.cross_attention, block.feed_forward
    if isinstance(own, SSRUSpec):
        inputs, output = _cell(own, store), None
    else:
        inputs, output = _projections(own, store), _output(own, store)
    weights = BlockWeights(
        self_projection=_joined(*inputs, store=store),
        self_output=output,
        self_norm=store.prepare_norm(block.self_attention_norm),
        inner=_joined(
            *(_matrix(d, store) for d in (network.inner, network.gate) if d), store=store
        ),
        outer=store.prepare_matrix(_matrix(network.outer, store)),
        feed_forward_norm=store.prepare_norm(block.feed_forward_norm),
    )
    if cross is None or block.cross_attention_norm is None:
        return weights
    query, key, value = _projections(cross, store)
    return weights._replace(
        memory_projection=_joined(key, value, store=store),
        cross_projection=store.prepare_matrix(query),
        cross_output=_output(cross, store),
        cross_norm=store.prepare_norm(block.cross_attention_norm),
    )


def _output(attention: AttentionSpec, store: Any) -> Any:
    """Return the matrix that joins the heads."""
    return store.prepare_matrix(_matrix(attention.output, store, input_axes=2))


def _projections(attention: AttentionSpec, store: Any) -> list[Matrix]:
    """To queries, which come times K^-1/2, keys and values."""
    parts = (attention.query, attention.key, attention.value)
    query, *others = (_matrix(part, store) for part in parts)
    factor = attention.query.kernel.shape[-1] ** -0.5
    query = Matrix(*(None if part is None else part * factor for part in query))
    return [query, *others]


def _cell(cell: SSRUSpec, store: Any) -> list[Matrix]:
    """To the input and the forget gate, both with a bias."""
    inner, forget = (_matrix(part, store) for part in (cell.inner, cell.forget))
    bias = store.ops.zeros_like(forget.bias) if inner.bias is None else inner.bias
    return [Matrix(inner.kernel, bias), forget]


def _matrix(dense: DenseSpec, store: Any, input_axes: int = 1) -> Matrix:
    """Return a kernel's axes as two, of which the first `input_axes` are the input's."""
    kernel = store.read(dense.kernel)
    rows = int(np.prod(kernel.shape[:input_axes]))
    bias = None if dense.bias is None else store.ops.reshape(store.read(dense.bias), (-1,))
    return Matrix(store.ops.reshape(kernel, (rows, -1)), bias)


def _joined(*matrices: Matrix, store: Any) -> Any:
    """Matrices for one input side by side, stored."""
    kernels, biases = zip(*matrices, strict=True)
    bias = None if biases[0] is None else store.ops.concatenate(biases, axis=-1)
    return store.prepare_matrix(Matrix(store.ops.concatenate(kernels, axis=-1), bias))
