"""A trained Transformer's encoder and one decoding step, written for speed over prepared weights.

The layers are the definition: `Transformer.encode` and `Transformer.decode_step`. This is the same
mathematics without what only training needs, on two-dimensional activations and with joined
projections, over a handful of operations that each backend has in a form of its own. `Operations` has
them in plain `keras.ops`, which is what the fast ones must equal.

The beams of a sentence share one buffer of keys and values: what each computes at a step gets a slot of
its own. Nothing is reordered when beams are; a mask says which slots are a beam's own history.

Shape letters: B sentences, K beams, R = B K rows, S source, P slots of the buffer, N heads, d width
of a head, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention.engine.prepare import (
    BlockWeights,
    BranchWeights,
    Matrix,
    Preparation,
    Sizes,
    Weights,
    prepare,
)
from keras_attention.ops.top_k import top_k
from keras_attention.spec import BlockSpec, BranchedAttentionSpec, NormSpec, TransformerSpec

# Added to the score of a position that a row may not attend to; its weight is exactly zero.
MASKED = -1e9
MASKED_IN_HALF = -3e4


class Operations:
    """The operations of inference in plain `keras.ops`.

    Args:
        spec: What is computed.
        dtype: Dtype of weights and activations; gains of the normalisations, statistics, softmax and
            log-probabilities are float32.
    """

    def __init__(self, spec: TransformerSpec, dtype: str):
        self.spec = spec
        self.sizes = Sizes.of(spec)
        self.dtype = dtype
        self.masked = MASKED_IN_HALF if dtype == "float16" else MASKED

    def prepare(self, spec: TransformerSpec) -> Weights:
        """The present weights of a spec in the form that the other methods take."""
        store = Preparation(
            read=ops.convert_to_tensor,
            table=self.prepare_table,
            matrix=self.prepare_matrix,
            projection=self.prepare_projection,
            norm=self.prepare_norm,
            xp=ops,
        )
        return prepare(spec, store)

    def prepare_table(self, table: Any) -> Any:
        """The embeddings (V, D)."""
        return {"rows": ops.cast(table, self.dtype)}

    def prepare_matrix(self, matrix: Matrix) -> Any:
        """A product's weights, for `linear`."""
        return Matrix(*(None if part is None else ops.cast(part, self.dtype) for part in matrix))

    def prepare_projection(self, matrix: Matrix, widths: Sequence[int]) -> Any:
        """A matrix (D, N (d + d' ..)), for `project`."""
        return self.prepare_matrix(matrix)

    def prepare_norm(self, norm: NormSpec) -> Any:
        """Gains and offsets."""
        return tuple(ops.cast(part, "float32") for part in (norm.gamma, norm.beta))

    def padding_bias(self, token_ids: Any) -> Any:
        """The bias (B, 1, 1, S) that hides padding: of ids (B, S)."""
        is_pad = ops.equal(token_ids, self.sizes.pad_token_id)[:, None, None, :]
        return ops.cast(is_pad, self.dtype) * ops.cast(self.masked, self.dtype)

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        """Rows of the table, scaled, zero for padding, plus positions (T, D): ids (B, T) to (B T, D)."""
        rows = ops.take(table["rows"], token_ids, axis=0)
        is_token = ops.not_equal(token_ids, self.sizes.pad_token_id)
        scale = ops.cast(is_token, self.dtype) * ops.cast(self.sizes.hidden_dim**0.5, self.dtype)
        x = ops.add(ops.multiply(rows, scale[..., None]), ops.cast(positions, self.dtype))
        return ops.reshape(x, (-1, self.sizes.hidden_dim))

    def tokens(self, token_ids: Any) -> Any:
        """Which of (B S) are no padding, for the next two; None where their number must not decide shapes."""
        return None

    def without_padding(self, x: Any, tokens: Any) -> Any:
        """The rows (tokens, D) of (B S, D) that are no padding."""
        return x

    def with_padding(self, x: Any, tokens: Any) -> Any:
        """Rows (tokens, D) back in their places of (B S, D); elsewhere is anything finite."""
        return x

    def linear(self, x: Any, matrix: Any, activation: Callable[[Any], Any] | None = None) -> Any:
        """`activation(x W + b)` of (R, D)."""
        outputs = ops.matmul(x, matrix.kernel)
        if matrix.bias is not None:
            outputs = ops.add(outputs, matrix.bias)
        return outputs if activation is None else activation(outputs)

    def norm(self, x: Any, norm: Any, epsilon: float) -> Any:
        """Layer normalisation of (R, D)."""
        return ops.layer_normalization(x, *norm, -1, epsilon)

    def norm_of_sum(self, x: Any, update: Any, norm: Any, epsilon: float) -> Any:
        """Layer normalisation of the sum of (R, D) and (R, D)."""
        return self.norm(x + update, norm, epsilon)

    def activation(self, name: str) -> Callable[[Any], Any]:
        """The activation of this name, one of `spec.parts.ACTIVATIONS`."""
        return keras.activations.get(name)

    def heads(self, x: Any, num_rows: Any, widths: Sequence[int]) -> list[Any]:
        """Cuts (B T, N (d + d' ..)) into tensors (B, N, T, d), (B, N, T, d'), ..; B = `num_rows`."""
        num_heads = self.sizes.num_heads
        ends = [num_heads * sum(widths[: i + 1]) for i in range(len(widths) - 1)]
        parts = ops.split(x, ends, axis=-1) if ends else [x]
        return [
            ops.transpose(ops.reshape(part, (num_rows, -1, num_heads, width)), (0, 2, 1, 3))
            for part, width in zip(parts, widths, strict=True)
        ]

    def project(
        self, x: Any, matrix: Any, widths: Sequence[int], num_rows: Any, tokens: Any = None
    ) -> list[Any]:
        """The heads that a projection makes of (B T, D), or of those of its rows that are no padding."""
        projected = self.linear(x, matrix)
        if tokens is not None:
            projected = self.with_padding(projected, tokens)
        return self.heads(projected, num_rows, widths)

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        """Attention of scaled queries (B, N, T, d), its heads joined: (B T, N d).

        `bias` (B, 1, 1 or T, P) is added to the scores: 0, or `masked`.
        """
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores = ops.add(ops.cast(scores, "float32"), ops.cast(bias, "float32"))
        outputs = ops.matmul(ops.cast(ops.softmax(scores, axis=-1), self.dtype), value)
        outputs = ops.transpose(outputs, (0, 2, 1, 3))
        return ops.reshape(outputs, (-1, self.sizes.num_heads * self.sizes.value_dim))

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        """`buffer` (B, N, P, d) with `new` (B, N, K, d) written at position `start`."""
        return ops.slice_update(buffer, (0, 0, start, 0), new)

    def logits(self, x: Any, table: Any) -> Any:
        """(R, D) to (R, V)."""
        return ops.matmul(x, ops.transpose(table["rows"]))

    def scores(self, x: Any, weights: Weights) -> Any:
        """Logits (R, V) of hidden states, by the table or by a softmax matrix of its own."""
        if weights.softmax is not None:
            return self.linear(x, weights.softmax)
        return self.logits(x, weights.table)

    def top_log_probs(self, logits: Any, width: int) -> tuple[Any, Any]:
        """Log-probabilities (float32) and ids, (R, width) each, of the likeliest tokens, best first."""
        logits = ops.cast(logits, "float32")
        values, ids = top_k(logits, width)
        return values - ops.logsumexp(logits, axis=-1, keepdims=True), ops.cast(ids, "int32")


def encode(
    operations: Operations, weights: Weights, token_ids: Any, positions: Any
) -> tuple[list[tuple[Any, Any]], Any]:
    """The memory of `Transformer.encode`.

    Args:
        operations: The operations.
        weights: Prepared weights.
        token_ids: Source ids (B, S).
        positions: Encodings of the positions, (S, D).

    Returns:
        For each decoder block the keys and values (B, N, S, d), and the padding's bias (B, 1, 1, S).
    """
    key_dim, value_dim = operations.sizes.key_dim, operations.sizes.value_dim
    num_rows = ops.shape(token_ids)[0]
    bias = operations.padding_bias(token_ids)
    # Only the attention needs the padding between the sentences.
    tokens = operations.tokens(token_ids)
    x = operations.embed(token_ids, weights.table, positions)
    if tokens is not None:
        x = operations.without_padding(x, tokens)

    for block, part in zip(operations.spec.encoder.blocks, weights.encoder.blocks, strict=True):

        def attention(x: Any, part: BlockWeights = part, block: BlockSpec = block) -> Any:
            query, key, value = operations.project(
                x, part.self_projection, (key_dim, key_dim, value_dim), num_rows, tokens
            )
            outputs = operations.attend(query, key, value, bias)
            if tokens is not None:
                outputs = operations.without_padding(outputs, tokens)
            return _joined_heads(operations, outputs, part.self_output, block.branched)

        x = _connected(operations, x, attention, part.self_norm, block, block.self_attention_norm)
        x = _feed_forward(operations, x, part, block)
    x = _last_norm(operations, x, weights.encoder.norm, operations.spec.encoder.norm)
    memory = []
    for part in weights.decoder.blocks:
        key, value = operations.project(
            x, part.memory_projection, (key_dim, value_dim), num_rows, tokens
        )
        memory.append((key, value))
    return memory, bias


def decode(
    operations: Operations,
    weights: Weights,
    token_ids: Any,
    position: Any,
    start: Any,
    history_bias: Any,
    buffers: Sequence[tuple[Any, Any]],
    memory: Sequence[tuple[Any, Any]],
    memory_bias: Any,
) -> tuple[Any, list[tuple[Any, Any]]]:
    """One step of `Transformer.decode_step`, its beams in one buffer.

    Args:
        operations: The operations.
        weights: Prepared weights.
        token_ids: The last tokens (B, K).
        position: The encoding of their position, (1, D).
        start: Where their keys and values are written: the slot of the first beam's.
        history_bias: (B, 1, K, P), 0 at the slots of a beam's own history and at its own new one,
            `operations.masked` at all others.
        buffers: For each block the keys and values (B, N, P, d) so far.
        memory: The keys and values of `encode`.
        memory_bias: The bias of `encode`.

    Returns:
        The hidden states (R, D) that the logits are made from, and the new buffers.
    """
    key_dim, value_dim = operations.sizes.key_dim, operations.sizes.value_dim
    num_rows = ops.shape(token_ids)[0]
    new_buffers: list[tuple[Any, Any]] = []
    x = operations.embed(token_ids, weights.table, position)
    for block, part, buffer, source in zip(
        operations.spec.decoder.blocks, weights.decoder.blocks, buffers, memory, strict=True
    ):

        def self_attention(
            x: Any, part: BlockWeights = part, buffer: Any = buffer, block: BlockSpec = block
        ) -> Any:
            query, *new = operations.project(
                x, part.self_projection, (key_dim, key_dim, value_dim), num_rows
            )
            key, value = (
                operations.append(old, added, start) for old, added in zip(buffer, new, strict=True)
            )
            new_buffers.append((key, value))
            outputs = operations.attend(query, key, value, history_bias)
            return _joined_heads(operations, outputs, part.self_output, block.branched)

        def cross_attention(
            x: Any, part: BlockWeights = part, source: Any = source, block: BlockSpec = block
        ) -> Any:
            (query,) = operations.project(x, part.cross_projection, (key_dim,), num_rows)
            outputs = operations.attend(query, source[0], source[1], memory_bias)
            return _joined_heads(operations, outputs, part.cross_output, block.branched)

        x = _connected(
            operations, x, self_attention, part.self_norm, block, block.self_attention_norm
        )
        x = _connected(
            operations, x, cross_attention, part.cross_norm, block, block.cross_attention_norm
        )
        x = _feed_forward(operations, x, part, block)
    return _last_norm(
        operations, x, weights.decoder.norm, operations.spec.decoder.norm
    ), new_buffers


def _joined_heads(
    operations: Operations, outputs: Any, weights: Any, branched: BranchedAttentionSpec | None
) -> Any:
    """What a block adds of its heads' outputs (R, N d): by a matrix, or by the networks of branches."""
    if not isinstance(weights, BranchWeights):
        return operations.linear(outputs, weights)
    assert branched is not None  # Only a branched attention has such weights.
    activation = operations.activation(branched.feed_forwards[0].activation)
    width = operations.sizes.value_dim
    parts = [
        operations.linear(outputs[:, i * width : (i + 1) * width], matrix, activation)
        for i, matrix in enumerate(weights.inner)
    ]
    if weights.alpha is None:
        hidden = ops.concatenate(parts, axis=-1)
    else:
        alpha = ops.cast(weights.alpha, operations.dtype)
        hidden = sum(part * alpha[i] for i, part in enumerate(parts))
    return operations.linear(hidden, weights.outer)


def _feed_forward(operations: Operations, x: Any, part: BlockWeights, block: BlockSpec) -> Any:
    if block.feed_forward is None:
        return x
    feed_forward = block.feed_forward

    def network(x: Any) -> Any:
        activation = operations.activation(feed_forward.activation)
        return operations.linear(operations.linear(x, part.inner, activation), part.outer)

    norm = block.feed_forward_norm
    return _connected(operations, x, network, part.feed_forward_norm, block, norm)


def _connected(
    operations: Operations,
    x: Any,
    sublayer: Callable[[Any], Any],
    weights: Any,
    block: BlockSpec,
    norm: Any,
) -> Any:
    """The residual connection around a sub-layer, post-norm or pre-norm."""
    if block.normalize_first:
        return x + sublayer(operations.norm(x, weights, norm.epsilon))
    return operations.norm_of_sum(x, sublayer(x), weights, norm.epsilon)


def _last_norm(operations: Operations, x: Any, weights: Any, norm: NormSpec | None) -> Any:
    return x if norm is None else operations.norm(x, weights, norm.epsilon)
