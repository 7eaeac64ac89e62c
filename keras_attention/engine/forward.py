"""A trained Transformer's encoder and one decoding step, written for speed over prepared weights.

The layers are the definition: `Transformer.encode` and `Transformer.decode_step`. This is the same
mathematics without what only training needs, on two-dimensional activations and with joined
projections, over a handful of operations that each backend has in a form of its own. `Operations` has
them in plain `keras.ops`, which is what the fast ones must equal.

The beams of a sentence share one buffer of keys and values: what each computes at a step gets a slot of
its own. Nothing is reordered when beams are; a mask says which slots are a beam's own history. Only the
state of a cell, one vector for each beam, is.

Shape letters: B sentences, W beams, R = B W rows, S source, P slots of the buffer, N heads, d width
of a head, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_attention.engine.prepare import (
    BlockWeights,
    Matrix,
    Preparation,
    Weights,
    prepare,
)
from keras_attention.spec import (
    BlockSpec,
    NormSpec,
    SSRUSpec,
    TransformerSpec,
)
from keras_attention.spec.parts import present_value

# Added to the score of a position that a row may not attend to; its weight is exactly zero.
MASKED = -1e9
MASKED_IN_HALF = -3e4


def present_weights(spec: TransformerSpec) -> list[Any]:
    """Return the weights of a spec as tensors."""
    return [tensor_of(weight) for weight in spec.weights().values()]


def watched_weights(spec: TransformerSpec) -> list[Any]:
    """Return the tensors that change if a weight of a spec does."""
    weights = spec.weights().values()
    return [tensor_of(one) for weight in weights for one in getattr(weight, "sources", (weight,))]


def tensor_of(weight: Any) -> Any:
    """Return the present value of a weight as a tensor."""
    from keras import ops

    return ops.convert_to_tensor(present_value(weight))


class Step(NamedTuple):
    """What a step of the decoder reads, besides what the last one left.

    Attributes:
        token_ids: The last tokens (B, W).
        position: The encoding of their position, (1, D), or of those of tokens in a row, (W, D).
        start: Where their keys and values are written: the slot of the first beam's.
        history_bias: (B, 1, W, P), 0 at the slots of a beam's own history and at its own new one,
            `operations.masked` at all others.
        parents: Of each row (R,) the row of the last step that it continues; None without cells.
    """

    token_ids: Any
    position: Any
    start: Any
    history_bias: Any
    parents: Any = None


class Operations:
    """The operations of inference in plain `keras.ops`.

    Args:
        spec: What is computed.
        dtype: Dtype of weights and activations; gains of the normalisations, statistics, softmax and
            log-probabilities are float32.
    """

    def __init__(self, spec: TransformerSpec, dtype: str):
        self.spec = spec
        self.dtype = dtype
        self.masked = MASKED_IN_HALF if dtype == "float16" else MASKED

    @functools.cached_property
    def ops(self) -> Any:
        """The functions that are computed with, under the names of `keras.ops`."""
        from keras import ops

        return ops

    def prepare(self, spec: TransformerSpec) -> Weights:
        """Return the present weights of a spec in the form that the other methods take."""
        store = Preparation(
            read=lambda weight: self.ops.convert_to_tensor(present_value(weight)),
            table=self.prepare_table,
            softmax=self.prepare_softmax,
            matrix=self.prepare_matrix,
            norm=self.prepare_norm,
            xp=self.ops,
        )
        return prepare(spec, store)

    def prepare_table(self, table: Any) -> Any:
        """Return the embeddings (V, D)."""
        return self.ops.cast(table, self.dtype)

    def prepare_softmax(self, table: Any, kernel: Any, bias: Any) -> Any:
        """Return the product to the logits, None where it is that with the table, and the float32 bias."""
        matrix = None if kernel is None else self.prepare_matrix(Matrix(kernel))
        return matrix, None if bias is None else self.ops.cast(bias, "float32")

    def prepare_matrix(self, matrix: Matrix) -> Any:
        """Return a product's weights, for `linear`."""
        return Matrix(
            *(None if part is None else self.ops.cast(part, self.dtype) for part in matrix)
        )

    def prepare_norm(self, norm: NormSpec) -> Any:
        """Gains, and offsets or None."""
        parts = (norm.gamma, norm.beta)
        return tuple(None if part is None else self.ops.cast(part, "float32") for part in parts)

    def padding_bias(self, token_ids: Any) -> Any:
        """Return the bias (B, 1, 1, S) that hides padding: of ids (B, S)."""
        is_pad = self.ops.equal(token_ids, self.spec.pad_token_id)[:, None, None, :]
        return self.ops.cast(is_pad, self.dtype) * self.ops.cast(self.masked, self.dtype)

    def embed(self, token_ids: Any, table: Any, positions: Any) -> Any:
        """Rows of the table, scaled, zero for padding, plus positions (T, D): ids (B, T) to (B T, D)."""
        rows = self.ops.take(table, token_ids, axis=0)
        is_token = self.ops.not_equal(token_ids, self.spec.pad_token_id)
        scale = self.ops.cast(is_token, self.dtype) * self.ops.cast(
            self.spec.hidden_dim**0.5, self.dtype
        )
        x = self.ops.add(
            self.ops.multiply(rows, scale[..., None]), self.ops.cast(positions, self.dtype)
        )
        return self.ops.reshape(x, (-1, self.spec.hidden_dim))

    def linear(self, x: Any, matrix: Any, activation: Callable[[Any], Any] | None = None) -> Any:
        """`activation(x W + b)` of (R, D)."""
        outputs = self.ops.matmul(x, matrix.kernel)
        if matrix.bias is not None:
            outputs = self.ops.add(outputs, matrix.bias)
        return outputs if activation is None else activation(outputs)

    def norm(self, x: Any, norm: Any, epsilon: float) -> Any:
        """Layer normalisation of (R, D), or RMSNorm."""
        gamma, beta = norm
        if beta is None:
            return self.ops.rms_normalization(x, gamma, -1, epsilon)
        return self.ops.layer_normalization(x, gamma, beta, -1, epsilon)

    def activation(self, name: str) -> Callable[[Any], Any]:
        """Return the activation of this name, one of `spec.parts.ACTIVATIONS`."""
        from keras import activations

        return activations.get(name)

    def heads(self, x: Any, num_rows: Any, widths: Sequence[int]) -> list[Any]:
        """Cuts (B T, N (d + d' ..)) into tensors (B, N, T, d), (B, N, T, d'), ..; B = `num_rows`."""
        num_heads = self.spec.num_heads
        ends = [num_heads * sum(widths[: i + 1]) for i in range(len(widths) - 1)]
        parts = self.ops.split(x, ends, axis=-1) if ends else [x]
        return [
            self.ops.transpose(
                self.ops.reshape(part, (num_rows, -1, num_heads, width)), (0, 2, 1, 3)
            )
            for part, width in zip(parts, widths, strict=True)
        ]

    def project(self, x: Any, matrix: Any, widths: Sequence[int], num_rows: Any) -> list[Any]:
        """Return the heads that a projection makes of (B T, D)."""
        return self.heads(self.linear(x, matrix), num_rows, widths)

    def attend(self, query: Any, key: Any, value: Any, bias: Any) -> Any:
        """Attention of scaled queries (B, N, T, d), its heads joined: (B T, N d).

        `bias` (B, 1, 1 or T, P) is added to the scores: 0, or `masked`.
        """
        scores = self.ops.matmul(query, self.ops.transpose(key, (0, 1, 3, 2)))
        scores = self.ops.add(self.ops.cast(scores, "float32"), self.ops.cast(bias, "float32"))
        outputs = self.ops.matmul(
            self.ops.cast(self.ops.softmax(scores, axis=-1), self.dtype), value
        )
        outputs = self.ops.transpose(outputs, (0, 2, 1, 3))
        return self.ops.reshape(outputs, (-1, self.spec.num_heads * self.spec.value_dim))

    def append(self, buffer: Any, new: Any, start: Any) -> Any:
        """`buffer` (B, N, P, d) with `new` (B, N, W, d) written at position `start`."""
        return self.ops.slice_update(buffer, (0, 0, start, 0), new)

    def cell(self, projected: Any, state: Any, parents: Any) -> Any:
        """Return the float32 states (B, W, D) of an SSRU after rows (R, 2 D) for input and forget gate."""
        width = self.spec.hidden_dim
        projected = self.ops.cast(projected, "float32")
        forget = self.ops.sigmoid(projected[:, width:])
        last = self.ops.take(self.ops.reshape(state, (-1, width)), parents, axis=0)
        new = forget * last + (1.0 - forget) * projected[:, :width]
        return self.ops.reshape(new, self.ops.shape(state))

    def logits(self, x: Any, table: Any, softmax: Any) -> Any:
        """(R, D) to (R, V)."""
        matrix, bias = softmax
        logits = (
            self.ops.matmul(x, self.ops.transpose(table))
            if matrix is None
            else self.linear(x, matrix)
        )
        return logits if bias is None else self.ops.cast(logits, "float32") + bias

    def top_log_probs(self, logits: Any, width: int) -> tuple[Any, Any]:
        """Log-probabilities (float32) and ids, (R, width) each, of the likeliest tokens, best first."""
        from keras_attention.ops.top_k import top_k

        logits = self.ops.cast(logits, "float32")
        values, ids = top_k(logits, width)
        return values - self.ops.logsumexp(logits, axis=-1, keepdims=True), self.ops.cast(
            ids, "int32"
        )


def encode(
    operations: Operations, weights: Weights, token_ids: Any, positions: Any
) -> tuple[list[tuple[Any, Any]], Any]:
    """Return the memory of `Transformer.encode`.

    Args:
        operations: The operations.
        weights: Prepared weights.
        token_ids: Source ids (B, S).
        positions: Encodings of the positions, (S, D).

    Returns:
        For each decoder block the keys and values (B, N, S, d), and the padding's bias (B, 1, 1, S).
    """
    bias = operations.padding_bias(token_ids)
    x = encoded(operations, weights, token_ids, positions, bias)
    return memory_of(operations, weights, x, operations.ops.shape(token_ids)[0]), bias


def encoded(
    operations: Operations, weights: Weights, token_ids: Any, positions: Any, bias: Any
) -> Any:
    """Return the encoder's output (B S, D); `bias` hides padding."""
    spec, num_rows = operations.spec, operations.ops.shape(token_ids)[0]
    widths = (spec.key_dim, spec.key_dim, spec.value_dim)
    table = weights.target if weights.source is None else weights.source
    x = operations.embed(token_ids, table, positions)
    for block, part in zip(spec.encoder.blocks, weights.encoder.blocks, strict=True):
        own = (block, block.self_attention_norm, part.self_norm)
        query, key, value = operations.project(
            _entered(operations, x, *own), part.self_projection, widths, num_rows
        )
        outputs = operations.attend(query, key, value, bias)
        outputs = operations.linear(outputs, part.self_output)
        x = _added(operations, x, outputs, *own)
        x = _feed_forward(operations, x, part, block)
    return _last_norm(operations, x, weights.encoder.norm, spec.encoder.norm)


def memory_of(
    operations: Operations, weights: Weights, x: Any, num_rows: Any
) -> list[tuple[Any, Any]]:
    """Return what `decode` reads of the encoder's output (B S, D)."""
    memory, widths = [], (operations.spec.key_dim, operations.spec.value_dim)
    for part in weights.decoder.blocks:
        key, value = operations.project(x, part.memory_projection, widths, num_rows)
        memory.append((key, value))
    return memory


def decode(
    operations: Operations,
    weights: Weights,
    step: Step,
    buffers: Sequence[tuple[Any, ...]],
    memory: Sequence[tuple[Any, Any]],
    memory_bias: Any,
    width: int | None,
) -> tuple[tuple[Any, Any], list[tuple[Any, ...]]]:
    """One step of `Transformer.decode_step`, its beams in one buffer.

    Args:
        operations: The operations.
        weights: Prepared weights.
        step: What is read.
        buffers: For each block the keys and values (B, N, P, d) so far; of a cell only the states
            (B, W, D) after the last step, in float32, zeros at first.
        memory: The keys and values of `encode`.
        memory_bias: The bias of `encode`.
        width: How many continuations are wanted, perhaps more than there are; None for the logits.

    Returns:
        Log-probabilities and ids (R, width) of the likeliest next tokens, or logits (R, V) and None; and the
        new buffers.
    """
    spec, num_rows = operations.spec, operations.ops.shape(step.token_ids)[0]
    new_buffers: list[tuple[Any, ...]] = []
    x = operations.embed(step.token_ids, weights.target, step.position)
    for block, part, buffer, source in zip(
        spec.decoder.blocks, weights.decoder.blocks, buffers, memory, strict=True
    ):
        x, new = _own(operations, x, block, part, buffer, step)
        new_buffers.append(new)
        cross = (block, block.cross_attention_norm, part.cross_norm)
        (query,) = operations.project(
            _entered(operations, x, *cross), part.cross_projection, (spec.key_dim,), num_rows
        )
        outputs = operations.attend(query, source[0], source[1], memory_bias)
        outputs = operations.linear(outputs, part.cross_output)
        x = _added(operations, x, outputs, *cross)
        x = _feed_forward(operations, x, part, block)
    x = _last_norm(operations, x, weights.decoder.norm, spec.decoder.norm)
    logits = operations.logits(x, weights.target, weights.softmax)
    if width is None:
        return (operations.ops.cast(logits, "float32"), None), new_buffers
    found = operations.top_log_probs(logits, min(width, spec.target_vocabulary_size))
    return found, new_buffers


def _own(
    operations: Operations,
    x: Any,
    block: BlockSpec,
    part: BlockWeights,
    buffer: tuple[Any, ...],
    step: Step,
) -> tuple[Any, tuple[Any, ...]]:
    """Return x after a decoder block's masked self-attention or cell, and its new buffer."""
    spec, num_rows = operations.spec, operations.ops.shape(step.token_ids)[0]
    own = (block, block.self_attention_norm, part.self_norm)
    entered = _entered(operations, x, *own)
    if isinstance(block.self_attention, SSRUSpec):
        projected = operations.linear(entered, part.self_projection)
        state = operations.cell(projected, buffer[0], step.parents)
        outputs = operations.ops.reshape(
            operations.ops.cast(operations.ops.relu(state), operations.dtype), (-1, spec.hidden_dim)
        )
        return _added(operations, x, outputs, *own), (state,)
    widths = (spec.key_dim, spec.key_dim, spec.value_dim)
    query, *new = operations.project(entered, part.self_projection, widths, num_rows)
    key, value = (
        operations.append(old, added, step.start) for old, added in zip(buffer, new, strict=True)
    )
    outputs = operations.attend(query, key, value, step.history_bias)
    outputs = operations.linear(outputs, part.self_output)
    return _added(operations, x, outputs, *own), (key, value)


def _feed_forward(operations: Operations, x: Any, part: BlockWeights, block: BlockSpec) -> Any:
    own = (block, block.feed_forward_norm, part.feed_forward_norm)
    activation = operations.activation(block.feed_forward.activation)
    entered = _entered(operations, x, *own)
    if block.feed_forward.gate is None:
        hidden = operations.linear(entered, part.inner, activation)
    else:
        both = operations.linear(entered, part.inner)
        hidden, gate = operations.ops.split(both, 2, axis=-1)
        hidden = activation(hidden) * gate
    return _added(operations, x, operations.linear(hidden, part.outer), *own)


def _entered(operations: Operations, x: Any, block: BlockSpec, norm: Any, weights: Any) -> Any:
    """Return what a sub-layer reads: normalised in a pre-norm block."""
    return operations.norm(x, weights, norm.epsilon) if block.normalize_first else x


def _added(
    operations: Operations, x: Any, update: Any, block: BlockSpec, norm: Any, weights: Any
) -> Any:
    """Return the residual connection around a sub-layer: normalised in a post-norm block."""
    x = x + update
    return x if block.normalize_first else operations.norm(x, weights, norm.epsilon)


def _last_norm(operations: Operations, x: Any, weights: Any, norm: NormSpec | None) -> Any:
    return x if norm is None else operations.norm(x, weights, norm.epsilon)
