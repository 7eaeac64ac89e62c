"""A trained Transformer's encoder and one decoding step, written for speed over prepared weights.

The layers are the definition: `Transformer.encode` and `Transformer.decode_step`. This is the same
mathematics without what only training needs, on two-dimensional activations and with joined
projections, over a handful of `Operations` that each backend has in a form of its own.

The beams of a sentence share one buffer of keys and values: what each computes at a step gets a slot of
its own. Nothing is reordered when beams are; a mask says which slots are a beam's own history. Only the
state of a cell, one vector for each beam, is.

Shape letters: B sentences, W beams, R = B W rows, S source, P slots of the buffer, N heads, d width
of a head, D hidden_dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_attention.engine.base import State, SteppingEngine
from keras_attention.engine.operations import Operations
from keras_attention.engine.prepare import BlockWeights, Weights
from keras_attention.spec import BlockSpec, NormSpec, SSRUSpec, TransformerSpec


class Step(NamedTuple):
    """What a step of the decoder reads, besides what the last one left."""

    token_ids: Any  # the last tokens (B, W)
    position: Any  # the encoding of their position, (1, D), or of those of tokens in a row, (W, D)
    start: Any  # where their keys and values are written: the slot of the first beam's
    # (B, 1, W, P), 0 at the slots of a beam's own history and at its own new one, `operations.masked` at
    # all others.
    history_bias: Any
    # Of each row (R,) the row of the last step that it continues; None without cells.
    parents: Any = None


def encode(
    operations: Operations, weights: Weights, token_ids: Any, positions: Any
) -> tuple[list[tuple[Any, Any]], Any]:
    """Return the memory of `Transformer.encode`.

    Args:
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
    x = _normalized(operations, x, weights.encoder.embedding_norm, spec.encoder.embedding_norm)
    for block, part in zip(spec.encoder.blocks, weights.encoder.blocks, strict=True):
        own = (block, block.self_attention_norm, part.self_norm)
        query, key, value = operations.project(
            _entered(operations, x, *own), part.self_projection, widths, num_rows
        )
        outputs = operations.attend(query, key, value, bias)
        outputs = operations.linear(outputs, part.self_output)
        x = _added(operations, x, outputs, *own)
        x = _feed_forward(operations, x, part, block)
    return _normalized(operations, x, weights.encoder.norm, spec.encoder.norm)


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
    x = _normalized(operations, x, weights.decoder.embedding_norm, spec.decoder.embedding_norm)
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
    x = _normalized(operations, x, weights.decoder.norm, spec.decoder.norm)
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


def _normalized(operations: Operations, x: Any, weights: Any, norm: NormSpec | None) -> Any:
    return x if norm is None else operations.norm(x, weights, norm.epsilon)


class ForwardEngine(SteppingEngine):
    """An engine that computes by the functions above, over some `Operations`."""

    kind_of_state: type[ForwardState]

    def __init__(self, spec: TransformerSpec, precision: str, operations: Operations):
        super().__init__(spec, precision)
        self.operations = operations
        self.weights: Any = None

    def read_weights(self) -> None:
        self.weights = self.operations.prepare(self.spec)
        self.positions.cache_clear()

    def start(self, token_ids: np.ndarray, beam_size: int, max_length: int) -> ForwardState:
        positions = self.positions("encoder", token_ids.shape[1])
        memory = self.encode(self.as_tensor(token_ids), positions)
        return self.kind_of_state(self, memory, self.positions("decoder", max_length), beam_size)

    def encode(self, token_ids: Any, positions: Any) -> tuple[Any, Any]:
        return encode(self.operations, self.weights, token_ids, positions)

    def as_bias(self, array: np.ndarray) -> Any:
        """Return the bias of a step as its attention takes it."""
        return self.as_tensor(array)

    def as_array(self, tensor: Any) -> Any:
        return None if tensor is None else np.asarray(tensor)

    def take(self, part: Any, rows: Any) -> Any:
        """Return some rows of a part of a state."""
        return part[rows]


class ForwardState(State):
    """One search of a `ForwardEngine`; keys and values are (B, N, P, d), and are written in place."""

    def __init__(self, engine: Any, memory: tuple[Any, Any], positions: Any, beam_size: int):
        (self._memory, self._memory_bias), self._positions = memory, positions
        super().__init__(engine, self._memory_bias.shape[0], beam_size)
        self.masked = engine.operations.masked
        self._buffers = self.first_buffers(self._memory_bias.shape[0], beam_size, len(positions))

    def first_buffers(self, rows: int, beam_size: int, max_length: int) -> list[Any]:
        state = np.zeros((rows, beam_size, self.engine.spec.hidden_dim), "float32")
        return [
            (self.engine.as_tensor(state),)
            if i in self.engine.cells
            else tuple(part[:, :, :0] for part in pair)
            for i, pair in enumerate(self._memory)
        ]

    def step(self, token_ids, index, start, history_bias, width):
        engine, parents = self.engine, self.parent_rows()
        seen = history_bias[:, None, :, : start + token_ids.shape[1]]
        step = Step(
            engine.as_tensor(token_ids),
            self._positions[index : index + 1],
            start,
            engine.as_bias(seen),
            None if parents is None else engine.as_tensor(parents),
        )
        memory = (self._memory, self._memory_bias)
        found, new = decode(engine.operations, engine.weights, step, self._buffers, *memory, width)
        for i in engine.cells:  # the others are written in place
            self._buffers[i] = new[i]
        return self.of_beams(found, token_ids.shape)

    def of_beams(self, found: Any, shape: tuple[int, int]) -> Any:
        """Return what `decode` has found for rows, (B, W, ..) each."""
        scores, ids = map(self.engine.as_array, found)
        return scores.reshape(*shape, -1), None if ids is None else ids.reshape(*shape, -1)

    def select_rows(self, rows: np.ndarray) -> None:
        super().select_rows(rows)
        take, chosen = self.engine.take, self.engine.as_tensor(rows)
        self._memory, self._buffers = (
            [tuple(take(part, chosen) for part in pair) for pair in pairs]
            for pairs in (self._memory, self._buffers)
        )
        self._memory_bias = take(self._memory_bias, chosen)
