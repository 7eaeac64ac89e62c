"""A step's layers by Numba: each thread computes its part, and all wait for each other in between.

Activations are float32. Rows are those of all sentences, one behind the other, without padding. A thread's
rows are whole groups (see `packing`), so that it packs what it normalised without waiting.

Shape letters: R rows, D hidden_dim, F outputs, N heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from keras_attention.engine.numba.attention import attend, exponentials
from keras_attention.engine.numba.llvm import (
    ANY_ORDER,
    ONE,
    address,
    copy_floats,
    njit_cached,
    number_now,
    wait_for_all,
)
from keras_attention.engine.numba.packing import (
    Kinds,
    Scratch,
    Tiling,
    pack_rows,
    round_to_bfloat16,
)
from keras_attention.engine.numba.tiles import DEPTH, WIDTH, multiply

# Logits that are looked at together.
CHUNK = 256
# The products of a block, and its norms.
SELF, SELF_OUTPUT, INNER, OUTER, CROSS, CROSS_OUTPUT, MEMORY = range(7)
SELF_NORM, FEED_FORWARD_NORM, CROSS_NORM = range(3)
# Options of a block: is it pre-norm, its activation, and the product that has branches before it, or -1.
PRE_NORM, ACTIVATION, BRANCHED = range(3)
ACTIVATIONS = ("relu", "linear", "gelu", "silu", "tanh", "sigmoid")
RELU, LINEAR, GELU, SILU, TANH, SIGMOID = range(len(ACTIVATIONS))
ANYTHING, ZERO = np.float32(-np.inf), np.float32(0.0)


class Stack(NamedTuple):
    """The encoder's or the decoder's blocks, as tables over all of them."""

    products: np.ndarray  # int64 (blocks, 7, PRODUCT)
    norms: np.ndarray  # float32 (blocks, 3, 2, D): gains and offsets
    epsilons: np.ndarray  # float32 (blocks, 3)
    options: np.ndarray  # int64 (blocks, 3), see `PRE_NORM`, ..
    branches: np.ndarray  # int64 (blocks, N, PRODUCT): a head's hidden layer
    alphas: np.ndarray  # float32 (blocks, N): its factor
    last_norm: np.ndarray  # float32 (0 or 1, 2, D)
    last_epsilon: float


class Model(NamedTuple):
    """What compiled code reads of a model."""

    encoder: Stack
    decoder: Stack
    softmax: np.ndarray  # int64 (PRODUCT,)
    table: np.ndarray  # float32 (V, D)
    heads: tuple[int, int, int]  # N, key_dim, value_dim
    kinds: Kinds
    tiling: Tiling
    kept: np.ndarray  # an empty array of the dtype of keys and values


class Room(NamedTuple):
    """Activations of up to R rows."""

    x: np.ndarray  # (R, D)
    normed: np.ndarray  # (R, D)
    update: np.ndarray  # (R, D)
    wide: np.ndarray  # (R, widest output of a product but the logits)
    attended: np.ndarray  # (R, N value_dim)
    hidden: np.ndarray  # (R, widest hidden layer of branches)
    packed: Scratch


class Team(NamedTuple):
    """A thread among others."""

    thread: int
    threads: int
    barrier: int  # an address, see `wait_for_all`
    stop: int  # address of a number that is not 0 when nobody waits for the result any more
    weights: int  # address of room for the weights of an attention, float32


@njit_cached()
def wait(team):
    """Until all threads are here."""
    if team.threads > 1:
        wait_for_all(team.barrier, team.threads)


@njit_cached()
def is_stopped(team):
    """Whether what would take long need not be computed; threads may see it at different times."""
    return number_now(team.stop) != 0


@njit_cached()
def own_rows(team, rows, group):
    """The first and the last of a thread's rows, in whole groups."""
    groups = (rows + group - 1) // group
    first = groups * team.thread // team.threads * group
    return first, min(rows, groups * (team.thread + 1) // team.threads * group)


@njit_cached()
def pack(model, room, x, begin, depth, first, last):
    """Packs columns of rows for `product`."""
    pack_rows(model.kinds, model.tiling, x, begin, depth, first, last, room.packed)


@njit_cached()
def product(model, room, team, rows, numbers, floor, outputs):
    """A product with the rows that all threads have packed, each a part; all wait for the whole."""
    wait(team)
    if not is_stopped(team):
        part, packed = (team.thread, team.threads), room.packed
        at, scales, tiling = packed.packed.ctypes.data, packed.scales, model.tiling
        multiply(model.kinds, rows, at, scales, numbers, floor, tiling, part, outputs)
    wait(team)


@njit_cached()
def enter(model, stack, room, block, norm, first, last):
    """Packs what a sub-layer reads: the rows, normalised in a pre-norm block."""
    depth = room.x.shape[1]
    if stack.options[block, PRE_NORM]:
        weights, epsilon = stack.norms[block, norm], stack.epsilons[block, norm]
        for row in range(first, last):
            copy_floats(address(room.x, row, 0), address(room.normed, row, 0), depth)
            normalize(room.normed[row], weights[0], weights[1], epsilon)
        pack(model, room, room.normed, 0, depth, first, last)
    else:
        pack(model, room, room.x, 0, depth, first, last)


@njit_cached()
def leave(stack, room, block, norm, first, last):
    """Adds a sub-layer's output to the rows, and normalises the sum in a post-norm block."""
    weights, epsilon = stack.norms[block, norm], stack.epsilons[block, norm]
    for row in range(first, last):
        numbers, update = room.x[row], room.update[row]
        for d in range(len(numbers)):
            numbers[d] += update[d]
        if not stack.options[block, PRE_NORM]:
            normalize(numbers, weights[0], weights[1], epsilon)


@njit_cached()
def input_product(model, stack, room, team, block, which, norm, rows):
    """An attention's queries, and in self-attention keys and values, in `room.wide`."""
    first, last = own_rows(team, rows, model.tiling.group)
    enter(model, stack, room, block, norm, first, last)
    product(model, room, team, rows, stack.products[block, which], ANYTHING, room.wide)


@njit_cached()
def output_product(model, stack, room, team, block, which, norm, rows):
    """The heads' product behind an attention, and the residual connection around both."""
    wait(team)
    first, last = own_rows(team, rows, model.tiling.group)
    numbers = stack.products[block, which]
    if stack.options[block, BRANCHED] == which:
        branches(model, stack, room, team, block, numbers[DEPTH], rows)
        pack(model, room, room.hidden, 0, numbers[DEPTH], first, last)
    else:
        pack(model, room, room.attended, 0, room.attended.shape[1], first, last)
    product(model, room, team, rows, numbers, ANYTHING, room.update)
    leave(stack, room, block, norm, first, last)


@njit_cached()
def branches(model, stack, room, team, block, depth, rows):
    """The hidden layer of a branched attention: its heads' own, summed, or side by side if it is so wide."""
    heads, _, value_dim = model.heads
    first, last = own_rows(team, rows, model.tiling.group)
    room.hidden[first:last, :depth] = ZERO
    for head in range(heads):
        numbers, alpha = stack.branches[block, head], stack.alphas[block, head]
        pack(model, room, room.attended, head * value_dim, value_dim, first, last)
        activated_product(model, stack, room, team, block, rows, numbers)
        width = numbers[WIDTH]
        begin = head * width if width < depth else 0
        for row in range(first, last):
            total, own = room.hidden[row, begin : begin + width], room.wide[row]
            for d in range(width):
                total[d] += alpha * own[d]


@njit_cached()
def activated_product(model, stack, room, team, block, rows, numbers):
    """A product with the rows that are packed and a block's activation, in `room.wide`."""
    first, last = own_rows(team, rows, model.tiling.group)
    activation = stack.options[block, ACTIVATION]
    floor = ZERO if activation == RELU else ANYTHING
    product(model, room, team, rows, numbers, floor, room.wide)
    if activation != RELU and activation != LINEAR:
        for row in range(first, last):
            activate(activation, room.wide[row, : numbers[WIDTH]])


@njit_cached()
def feed_forward(model, stack, room, team, block, rows):
    """The position-wise network, if the block has one, and the residual connection around it."""
    inner, outer = stack.products[block, INNER], stack.products[block, OUTER]
    if not inner[WIDTH]:
        return
    first, last = own_rows(team, rows, model.tiling.group)
    enter(model, stack, room, block, FEED_FORWARD_NORM, first, last)
    activated_product(model, stack, room, team, block, rows, inner)
    pack(model, room, room.wide, 0, inner[WIDTH], first, last)
    product(model, room, team, rows, outer, ANYTHING, room.update)
    leave(stack, room, block, FEED_FORWARD_NORM, first, last)


@njit_cached()
def last_norm(model, stack, room, team, rows):
    """The normalisation behind the last block, if there is one, and the rows packed."""
    first, last = own_rows(team, rows, model.tiling.group)
    if len(stack.last_norm):
        for row in range(first, last):
            weights = stack.last_norm[0]
            normalize(room.x[row], weights[0], weights[1], np.float32(stack.last_epsilon))
    pack(model, room, room.x, 0, room.x.shape[1], first, last)


@njit_cached()
def attend_row(model, room, team, keys, values, places, number, row, head):
    """One head of one row: a query in `room.wide`, keys and values anywhere; see `attend`."""
    _, key_dim, value_dim = model.heads
    query = address(room.wide, row, head * key_dim)
    output = address(room.attended, row, head * value_dim)
    weights = team.weights
    attend(model.kept, query, key_dim, keys, values, value_dim, places, number, weights, output)


@njit_cached()
def keep(kept, numbers, output, width):
    """Stores numbers at an address as keys and values are kept, at another."""
    if kept.itemsize == 2:
        round_to_bfloat16(numbers, output, width)
    else:
        copy_floats(numbers, output, width)


@njit_cached(fastmath=ANY_ORDER)
def normalize(numbers, gamma, beta, epsilon):
    """Layer normalisation of one row, in place."""
    depth = np.float32(len(numbers))
    mean = np.float32(0.0)
    for d in range(len(numbers)):
        mean += numbers[d]
    mean /= depth
    variance = np.float32(0.0)
    for d in range(len(numbers)):
        variance += (numbers[d] - mean) * (numbers[d] - mean)
    factor = ONE / np.sqrt(variance / depth + epsilon)
    for d in range(len(numbers)):
        numbers[d] = (numbers[d] - mean) * factor * gamma[d] + beta[d]


@njit_cached()
def activate(activation, numbers):
    """An activation of one row, in place."""
    for d in range(len(numbers)):
        x = numbers[d]
        if activation == GELU:
            x = np.float32(0.5) * x * (ONE + np.float32(math.erf(x * np.float32(0.5**0.5))))
        elif activation == TANH:
            x = np.tanh(x)
        else:
            # Of a number that is not positive: it cannot overflow.
            power = np.exp(-abs(x))
            share = ONE / (ONE + power) if x >= 0 else power / (ONE + power)
            x = x * share if activation == SILU else share
        numbers[d] = x


@njit_cached()
def _has_above(numbers, limit):
    """Looks at all of them, in vectors."""
    count = 0
    for i in range(len(numbers)):
        count += numbers[i] > limit
    return count > 0


@njit_cached()
def top_log_probs(numbers, found, ids):
    """The largest of a row of logits (V,) as log-probabilities, and where, best first.

    Ties go to the lower id. The logits are overwritten.
    """
    width = len(found)
    found[:] = -np.inf
    ids[:] = 0
    for start in range(0, len(numbers), CHUNK):
        chunk = numbers[start : start + CHUNK]
        if _has_above(chunk, found[width - 1]):
            for i in range(len(chunk)):
                slot = width
                while slot and chunk[i] > found[slot - 1]:
                    slot -= 1
                    if slot < width - 1:
                        found[slot + 1], ids[slot + 1] = found[slot], ids[slot]
                    found[slot], ids[slot] = chunk[i], start + i
    largest = found[0]
    normalizer = largest + np.log(exponentials(numbers, largest))
    for slot in range(width):
        found[slot] -= normalizer
