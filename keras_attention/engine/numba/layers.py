"""The layers of a step: each thread computes its rows or panels, and barriers stand in between.

Activations are float32. The rows of all sentences follow each other, without padding. The row range of a
thread is whole groups (see `packing`), so that it packs what it normalized without waiting.

Shape letters: R rows, D hidden_dim, F outputs, N heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from keras_attention.engine.numba.attention import attend, exponentials
from keras_attention.engine.numba.compiling import ANY_ORDER, njit
from keras_attention.engine.numba.llvm import address
from keras_attention.engine.numba.packing import Layout, PackedRows, pack_rows, round_to_bfloat16
from keras_attention.engine.numba.threads import is_stopped, row_range, wait
from keras_attention.engine.numba.tiles import DEPTH, WIDTH, multiply

# Logits that are compared at once.
CHUNK = 256
# The matrices of a block, and its norms.
SELF, SELF_OUTPUT, INNER, OUTER, CROSS, CROSS_OUTPUT, MEMORY = range(7)
SELF_NORM, FEED_FORWARD_NORM, CROSS_NORM = range(3)
# Options of a block: is it pre-norm, its activation, and whether it has a cell in place of self-attention.
PRE_NORM, ACTIVATION, CELL = range(3)
ACTIVATIONS = ("relu", "linear", "gelu", "silu", "tanh", "sigmoid")
RELU, LINEAR, GELU, SILU, TANH, SIGMOID = range(len(ACTIVATIONS))
NEG_INF, ZERO, ONE = np.float32(-np.inf), np.float32(0.0), np.float32(1.0)


class Stack(NamedTuple):
    """The encoder's or the decoder's blocks, as tables over all of them."""

    matrices: np.ndarray  # int64 (blocks, 7, MATRIX)
    norms: np.ndarray  # float32 (blocks, 3, 3, D): gains, offsets, 1 with a mean or 0
    epsilons: np.ndarray  # float32 (blocks, 3)
    options: np.ndarray  # int64 (blocks, 3), see `PRE_NORM`, ..
    embedding_norm: np.ndarray  # float32 (0 or 1, 3, D)
    last_norm: np.ndarray  # float32 (0 or 1, 3, D)
    outer_epsilons: np.ndarray  # float32 (2,), of these


class Model(NamedTuple):
    """A model as compiled code reads it."""

    encoder: Stack
    decoder: Stack
    softmax: np.ndarray  # int64 (MATRIX,)
    source: np.ndarray  # float32 (V, D), the tables
    target: np.ndarray  # float32 (V, D), of the target's vocabulary
    heads: tuple[int, int, int]  # N, key_dim, value_dim
    layout: Layout


class Workspace(NamedTuple):
    """Activations of up to R rows."""

    x: np.ndarray  # (R, D), the residual stream
    normalized: np.ndarray  # (R, D)
    update: np.ndarray  # (R, D), a sub-layer's output
    projected: np.ndarray  # (R, widest output of a matrix, but the logits)
    attended: np.ndarray  # (R, N value_dim)
    packed: PackedRows


@njit
def matmul(model, workspace, group, rows, matrix, floor, outputs):
    """Multiply the rows that all threads packed; each thread computes some panels, and all wait."""
    wait(group)
    if not is_stopped(group):
        packed = workspace.packed
        multiply(model.layout, rows, packed, matrix, floor, group.rank, group.size, outputs)
    wait(group)


@njit
def pre_norm_pack(model, stack, workspace, block, norm, rows):
    """Pack the input of a sub-layer: the residual stream, normalized in a pre-norm block."""
    x, normalized = workspace.x, workspace.normalized
    if not stack.options[block, PRE_NORM]:
        normalized = x
    else:
        for row in range(rows[0], rows[1]):
            copy(x[row], normalized[row])
            normalize(normalized[row], stack.norms[block, norm], stack.epsilons[block, norm])
    pack_rows(model.layout, workspace.packed, normalized, 0, x.shape[1], rows)


@njit
def residual_add(stack, workspace, block, norm, rows):
    """Add a sub-layer's output to the residual stream, and normalize the sum in a post-norm block."""
    for row in range(rows[0], rows[1]):
        x, update = workspace.x[row], workspace.update[row]
        for d in range(len(x)):
            x[d] += update[d]
        if not stack.options[block, PRE_NORM]:
            normalize(x, stack.norms[block, norm], stack.epsilons[block, norm])


@njit
def attention_inputs(model, stack, workspace, group, block, which, norm, rows):
    """Project an attention's queries, and in self-attention keys and values, into `projected`."""
    own = row_range(group, rows, model.layout.group)
    pre_norm_pack(model, stack, workspace, block, norm, own)
    matrix = stack.matrices[block, which]
    matmul(model, workspace, group, rows, matrix, NEG_INF, workspace.projected)


@njit
def attention_output(model, stack, workspace, group, block, which, norm, rows):
    """Apply the output matrix of an attention and the residual connection."""
    wait(group)
    own = row_range(group, rows, model.layout.group)
    matrix = stack.matrices[block, which]
    pack_rows(
        model.layout, workspace.packed, workspace.attended, 0, workspace.attended.shape[1], own
    )
    matmul(model, workspace, group, rows, matrix, NEG_INF, workspace.update)
    residual_add(stack, workspace, block, norm, own)


@njit
def cell(workspace, row, last, state):
    """Apply an SSRU to one row, whose input and forget gate are in `projected`: `relu(state)` to `update`.

    Args:
        workspace: Activations.
        row: The row.
        last: float32 (D,), its state after the last step.
        state: float32 (D,), where its new one is written.
    """
    width = len(state)
    inner, gate = workspace.projected[row, :width], workspace.projected[row, width : 2 * width]
    powers = workspace.update[row]
    for d in range(width):
        powers[d] = -abs(gate[d])  # The power of a number that is not positive cannot overflow.
    exponentials(powers, ZERO)
    for d in range(width):
        share = ONE / (ONE + powers[d])
        forget = share if gate[d] >= ZERO else powers[d] * share
        keep = powers[d] * share if gate[d] >= ZERO else share  # 1 - forget, to the last digit
        new = forget * last[d] + keep * inner[d]
        state[d] = new
        powers[d] = ZERO if new < ZERO else new  # NaN stays


@njit
def activated_matmul(model, stack, workspace, group, block, rows, width):
    """Multiply the packed rows, and apply the block's activation and gate, into `width` of `projected`."""
    inner, activation = stack.matrices[block, INNER], stack.options[block, ACTIVATION]
    has_gate = inner[WIDTH] > width
    floor = ZERO if activation == RELU and not has_gate else NEG_INF
    matmul(model, workspace, group, rows, inner, floor, workspace.projected)
    if has_gate or (activation != RELU and activation != LINEAR):
        first, last = row_range(group, rows, model.layout.group)
        for row in range(first, last):
            hidden, gate = workspace.projected[row, :width], workspace.projected[row, width:]
            activate(activation, hidden)
            if has_gate:
                for d in range(width):
                    hidden[d] *= gate[d]


@njit
def feed_forward(model, stack, workspace, group, block, rows):
    """Apply the position-wise network, if the block has one, and the residual connection."""
    outer = stack.matrices[block, OUTER]
    width = outer[DEPTH]
    if not width:
        return
    own = row_range(group, rows, model.layout.group)
    pre_norm_pack(model, stack, workspace, block, FEED_FORWARD_NORM, own)
    activated_matmul(model, stack, workspace, group, block, rows, width)
    pack_rows(model.layout, workspace.packed, workspace.projected, 0, width, own)
    matmul(model, workspace, group, rows, outer, NEG_INF, workspace.update)
    residual_add(stack, workspace, block, FEED_FORWARD_NORM, own)


@njit
def normalize_rows(workspace, norm, epsilon, rows):
    """Normalize a row range of `x`, if there is a norm."""
    if len(norm):
        for row in range(rows[0], rows[1]):
            normalize(workspace.x[row], norm[0], epsilon)


@njit
def last_norm_pack(model, stack, workspace, group, rows):
    """Normalize behind the last block, if there is a norm, and pack the rows."""
    own = row_range(group, rows, model.layout.group)
    normalize_rows(workspace, stack.last_norm, stack.outer_epsilons[1], own)
    pack_rows(model.layout, workspace.packed, workspace.x, 0, workspace.x.shape[1], own)


@njit
def attend_row(model, workspace, group, keys, values, slots, count, row, head):
    """Attend with one head of one row to slots of the KV cache; see `attend`."""
    _, key_dim, value_dim = model.heads
    query = address(workspace.projected, row, head * key_dim)
    output = address(workspace.attended, row, head * value_dim)
    kv, scores = model.layout.kv, group.scores
    attend(kv, query, key_dim, keys, values, value_dim, slots, count, scores, output)


@njit
def store_kv(numbers, output):
    """Write float32 keys or values into the cache, in its dtype."""
    if output.itemsize == 2:
        round_to_bfloat16(numbers, output)
    else:
        copy(numbers, output)


@njit
def copy(numbers, output):
    """Copy an array to the beginning of another."""
    for i in range(len(numbers)):
        output[i] = numbers[i]


@njit(fastmath=ANY_ORDER)
def normalize(numbers, weights, epsilon):
    """Apply layer normalization or RMSNorm to one row, in place; of the weights (3, D) see `Stack.norms`."""
    gamma, beta = weights[0], weights[1]
    depth = np.float32(len(numbers))
    mean = np.float32(0.0)
    for d in range(len(numbers)):
        mean += numbers[d]
    mean *= weights[2, 0] / depth
    variance = np.float32(0.0)
    for d in range(len(numbers)):
        variance += (numbers[d] - mean) * (numbers[d] - mean)
    factor = ONE / np.sqrt(variance / depth + epsilon)
    for d in range(len(numbers)):
        numbers[d] = (numbers[d] - mean) * factor * gamma[d] + beta[d]


@njit
def activate(activation, numbers):
    """Apply an activation to one row, in place."""
    for d in range(len(numbers)):
        x = numbers[d]
        if activation == GELU:
            x = np.float32(0.5) * x * (ONE + np.float32(math.erf(x * np.float32(0.5**0.5))))
        elif activation == TANH:
            x = np.tanh(x)
        elif activation == RELU:
            x = ZERO if x < ZERO else x  # NaN stays
        elif activation != LINEAR:
            # The power of a number that is not positive cannot overflow.
            power = np.exp(-abs(x))
            share = ONE / (ONE + power) if x >= 0 else power / (ONE + power)
            x = x * share if activation == SILU else share
        numbers[d] = x


@njit
def _has_above(numbers, limit):
    """Return whether a number is above a limit; it compares all, in vectors."""
    count = 0
    for i in range(len(numbers)):
        count += numbers[i] > limit
    return count > 0


@njit
def find_largest(numbers, values, ids):
    """Find the largest of a row of numbers (V,), and their ids, largest first.

    Ties go to the lower id. A value is -inf if there are fewer.
    """
    width = len(values)
    values[:] = -np.inf
    ids[:] = 0
    for start in range(0, len(numbers), CHUNK):
        chunk = numbers[start : start + CHUNK]
        if _has_above(chunk, values[width - 1]):
            for i in range(len(chunk)):
                rank = width
                while rank and chunk[i] > values[rank - 1]:
                    rank -= 1
                    if rank < width - 1:
                        values[rank + 1], ids[rank + 1] = values[rank], ids[rank]
                    values[rank], ids[rank] = chunk[i], start + i


@njit
def top_log_probs(logits, values, ids):
    """Find the largest of a row of logits (V,) as log-probabilities, and their ids, best first.

    The logits are overwritten.
    """
    find_largest(logits, values, ids)
    largest = values[0]
    normalizer = largest + np.log(exponentials(logits, largest))
    for rank in range(len(values)):
        values[rank] -= normalizer
