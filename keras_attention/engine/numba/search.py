"""A whole beam search in one compiled call: encoder, decoder steps, and the choice of hypotheses.

The rules are those of `decoding.hypotheses`, whose numbers come in: the penalty of each length, and the
rank of the finished hypothesis that must be certain. A sentence that is done leaves the batch: the rows of
a step are those of the active sentences.

Each sentence has a KV cache of slots. Step t writes the slots t W to t W + W - 1, one for each beam. A
beam's history is a list of slots: when beams are reordered, only these lists are copied. A cell has no
slots, but a state of one vector for each beam, of this step and of the last.

Shape letters: B sentences, W beams, L longest hypothesis, R = B W rows, T source tokens without padding,
D hidden_dim, V vocabulary, C candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_attention.engine.numba.choice import Choice, choose
from keras_attention.engine.numba.compiling import njit
from keras_attention.engine.numba.layers import (
    CELL,
    CROSS,
    CROSS_NORM,
    CROSS_OUTPUT,
    MEMORY,
    NEG_INF,
    SELF,
    SELF_NORM,
    SELF_OUTPUT,
    attend_row,
    attention_inputs,
    attention_output,
    cell,
    copy,
    feed_forward,
    last_norm_pack,
    matmul,
    normalize_rows,
    residual_add,
    store_kv,
    top_log_probs,
)
from keras_attention.engine.numba.llvm import address
from keras_attention.engine.numba.threads import is_stopped, row_range, wait


class Source(NamedTuple):
    """The sentences to translate."""

    ids: np.ndarray  # int32 (T,), the tokens of all sentences, one behind the other
    token_positions: np.ndarray  # int64 (T,), of each token in its sentence
    bounds: np.ndarray  # int64 (B + 1,), where each sentence begins, and the last one ends
    positions: np.ndarray  # float32 (S, D), encodings
    slots: np.ndarray  # int64 (S + 16,), 0, 1, 2, ..: what attention to a sentence reads


class Rules(NamedTuple):
    """What is searched for; see `decoding.hypotheses`."""

    limits: np.ndarray  # int64 (B,), the longest hypothesis of each sentence
    penalties: np.ndarray  # float32 (L + 1,), of each length
    decisive_slot: int
    end_token_id: int
    pad_token_id: int
    positions: np.ndarray  # float32 (L, D), encodings
    choice: Choice


class SearchState(NamedTuple):
    """What steps leave to later steps, and their workspace."""

    sentences: np.ndarray  # int64 (B,), the active ones come first
    active: np.ndarray  # int64 (1,), how many they are
    tokens: np.ndarray  # int32 (B, W), the input of the next step
    history: np.ndarray  # int64 (2, B, W, L + 16), slots of beams; steps alternate between the two
    keys: np.ndarray  # kv (blocks, B, L W, N key_dim)
    values: np.ndarray  # kv (blocks, B, L W, N value_dim)
    cells: np.ndarray  # float32 (2, blocks, R, D), states of cells; steps alternate between the two
    memory: np.ndarray  # kv (blocks, T, N (key_dim + value_dim)), of the encoder's output
    logits: np.ndarray  # float32 (R, V)
    weights: np.ndarray  # float32 (R, V), workspace of a choice that is not plain
    log_probs: np.ndarray  # float32 (R, C), of each row's likeliest tokens
    ids: np.ndarray  # int32 (R, C), which they are
    scores: np.ndarray  # float32 (B, C), of each sentence's best candidates
    chosen: np.ndarray  # int64 (B, C), which they are
    previous: np.ndarray  # int32 (B, W, L), the sequences that they continue


def search(model, encoder_workspace, workspace, group, source, rules, state, found):
    """Encode and search until all sentences are done, or it is stopped; each thread of a group calls it."""
    encode(model, encoder_workspace, group, source, state)
    index = 0
    while state.active[0] > 0:
        active = state.active[0]
        step(model, workspace, group, source, rules, state, found, active, index)
        first, last = row_range(group, active, 1)
        for place in range(first, last):
            extend_beams(rules, state, found, place, index)
        wait(group)
        index += 1
        if group.rank == 0:
            active = drop_done(rules, state, found, active, index)
            state.active[0] = 0 if is_stopped(group) else active
        wait(group)


@njit
def embed(table, token, pad_token_id, position, output):
    """Write a token's row of a table, scaled, plus its position's encoding."""
    scale = np.float32(np.sqrt(np.float32(len(output))))
    if token == pad_token_id:
        scale = np.float32(0.0)
    row = table[token]
    for d in range(len(output)):
        output[d] = row[d] * scale + position[d]


@njit
def encode(model, workspace, group, source, state):
    """Run the encoder, and store every decoder block's keys and values of its output."""
    stack, rows = model.encoder, len(source.ids)
    heads, key_dim, _ = model.heads
    own = row_range(group, rows, model.layout.group)
    for row in range(own[0], own[1]):
        position = source.positions[source.token_positions[row]]
        embed(model.source, source.ids[row], -1, position, workspace.x[row])
    normalize_rows(workspace, stack.embedding_norm, stack.outer_epsilons[0], own)
    memory, bounds = state.memory[0], source.bounds
    for block in range(len(stack.matrices)):
        attention_inputs(model, stack, workspace, group, block, SELF, SELF_NORM, rows)
        store_rows(workspace, heads * key_dim, memory, own)
        wait(group)
        for task in range(group.rank, (len(bounds) - 1) * heads, group.size):
            sentence, head = task // heads, task % heads
            queries = bounds[sentence], bounds[sentence + 1]
            attend_to_source(model, workspace, group, source, memory, sentence, head, queries)
        attention_output(model, stack, workspace, group, block, SELF_OUTPUT, SELF_NORM, rows)
        feed_forward(model, stack, workspace, group, block, rows)
    last_norm_pack(model, stack, workspace, group, rows)
    for block in range(len(model.decoder.matrices)):
        matrix = model.decoder.matrices[block, MEMORY]
        matmul(model, workspace, group, rows, matrix, NEG_INF, workspace.projected)
        store_rows(workspace, 0, state.memory[block], own)


@njit
def store_rows(workspace, begin, memory, rows):
    """Store keys and values of a row range, which begin at a column of `projected`."""
    end = begin + memory.shape[1]
    for row in range(rows[0], rows[1]):
        store_kv(workspace.projected[row, begin:end], memory[row])


@njit
def step(model, workspace, group, source, rules, state, found, active, index):
    """Feed every beam of the active sentences its token; find the likeliest next tokens."""
    stack, heads = model.decoder, model.heads[0]
    beams = state.tokens.shape[1]
    rows = active * beams
    first, last = row_range(group, rows, model.layout.group)
    for row in range(first, last):
        token = state.tokens[state.sentences[row // beams], row % beams]
        position = rules.positions[index]
        embed(model.target, token, rules.pad_token_id, position, workspace.x[row])
    normalize_rows(workspace, stack.embedding_norm, stack.outer_epsilons[0], (first, last))
    for block in range(len(stack.matrices)):
        attention_inputs(model, stack, workspace, group, block, SELF, SELF_NORM, rows)
        if stack.options[block, CELL]:
            run_cells(workspace, state, first, last, block, index)
            residual_add(stack, workspace, block, SELF_NORM, (first, last))
        else:
            attend_to_history(model, workspace, group, rules, state, active, block, index)
            attention_output(model, stack, workspace, group, block, SELF_OUTPUT, SELF_NORM, rows)
        attention_inputs(model, stack, workspace, group, block, CROSS, CROSS_NORM, rows)
        memory = state.memory[block]
        for task in range(group.rank, active * heads, group.size):
            place, head = task // heads, task % heads
            sentence, queries = state.sentences[place], (place * beams, (place + 1) * beams)
            attend_to_source(model, workspace, group, source, memory, sentence, head, queries)
        attention_output(model, stack, workspace, group, block, CROSS_OUTPUT, CROSS_NORM, rows)
        feed_forward(model, stack, workspace, group, block, rows)
    last_norm_pack(model, stack, workspace, group, rows)
    matmul(model, workspace, group, rows, model.softmax, NEG_INF, state.logits)
    first, last = row_range(group, rows, 1)
    for row in range(first, last):
        logits, values, ids = state.logits[row], state.log_probs[row], state.ids[row]
        if rules.choice.is_plain:
            top_log_probs(logits, values, ids)
        else:
            sentence = state.sentences[row // beams]
            tokens = found.alive_sequences[sentence, row % beams]
            choose(rules.choice, sentence, tokens, index, logits, state.weights[row], values, ids)
    wait(group)


@njit
def run_cells(workspace, state, first, last, block, index):
    """Apply a block's cell to a row range: each beam goes on from the state of the beam it continues."""
    beams = state.tokens.shape[1]
    old, new = state.cells[(index + 1) % 2, block], state.cells[index % 2, block]
    for row in range(first, last):
        sentence, beam = state.sentences[row // beams], row % beams
        parent = beam
        if index:  # whose slot of the last step is in the history
            parent = state.history[index % 2, sentence, beam, index - 1] % beams
        cell(workspace, row, old[sentence * beams + parent], new[sentence * beams + beam])


@njit
def attend_to_history(model, workspace, group, rules, state, active, block, index):
    """Store every beam's new keys and values, and attend to its history; threads share the heads."""
    heads, key_dim, value_dim = model.heads
    beams = state.tokens.shape[1]
    new = index * beams
    for task in range(group.rank, active * heads, group.size):
        place, head = task // heads, task % heads
        sentence = state.sentences[place]
        keys, values = state.keys[block, sentence], state.values[block, sentence]
        key, value, width = head * key_dim, head * value_dim, heads * key_dim
        for beam in range(beams):
            row, slot = workspace.projected[place * beams + beam], new + beam
            own_key, own_value = row[width + key :], row[2 * width + value :]
            store_kv(own_key[:key_dim], keys[slot, key : key + key_dim])
            store_kv(own_value[:value_dim], values[slot, value : value + value_dim])
        head_keys = (address(keys, 0, key), keys.strides[0])
        head_values = (address(values, 0, value), values.strides[0])
        for beam in range(beams):
            slots = state.history[index % 2, sentence, beam].ctypes.data
            row, count = place * beams + beam, index + 1
            attend_row(model, workspace, group, head_keys, head_values, slots, count, row, head)


@njit
def attend_to_source(model, workspace, group, source, memory, sentence, head, queries):
    """Attend with one head of a range of rows to the tokens of a sentence in `memory` (T, ..)."""
    heads, key_dim, value_dim = model.heads
    begin, end = source.bounds[sentence], source.bounds[sentence + 1]
    slots = source.slots.ctypes.data
    keys = (address(memory, begin, head * key_dim), memory.strides[0])
    values = (address(memory, begin, heads * key_dim + head * value_dim), memory.strides[0])
    for row in range(queries[0], queries[1]):
        if is_stopped(group):
            break
        attend_row(model, workspace, group, keys, values, slots, end - begin, row, head)


@njit
def extend_beams(rules, state, found, place, index):
    """Extend the beams of one sentence by the best candidates; some of them end."""
    sentence, beams = state.sentences[place], state.tokens.shape[1]
    width = state.log_probs.shape[1]
    scores, chosen = state.scores[place], state.chosen[place]
    most, count = len(scores), 0
    for candidate in range(beams * width):
        beam, column = candidate // width, candidate % width
        score = found.alive_scores[sentence, beam] + state.log_probs[place * beams + beam, column]
        rank = count
        # Ties go to the first; what is not a number comes last.
        while rank and (
            score > scores[rank - 1] or (np.isnan(scores[rank - 1]) and score == score)
        ):
            rank -= 1
        if rank < most:
            count = min(count + 1, most)
            for later in range(count - 1, rank, -1):
                scores[later], chosen[later] = scores[later - 1], chosen[later - 1]
            scores[rank], chosen[rank] = score, candidate
    old, new = state.history[index % 2, sentence], state.history[(index + 1) % 2, sentence]
    sequences, previous = found.alive_sequences[sentence], state.previous[place]
    for beam in range(beams):
        copy(sequences[beam, :index], previous[beam])
    found.alive_scores[sentence] = NEG_INF
    alive = 0
    for rank in range(most):
        beam, column = chosen[rank] // width, chosen[rank] % width
        token = state.ids[place * beams + beam, column]
        if token == rules.end_token_id:
            score = scores[rank] / rules.penalties[index + 1]
            insert_finished(rules, found, sentence, previous[beam, :index], score)
        elif alive < beams and scores[rank] > NEG_INF:
            found.alive_scores[sentence, alive] = scores[rank]
            copy(previous[beam, :index], sequences[alive])
            sequences[alive, index] = token
            state.tokens[sentence, alive] = token
            copy(old[beam, : index + 1], new[alive])
            alive += 1
    for beam in range(beams):
        if beam >= alive:  # An unused beam computes something finite, which is never chosen.
            state.tokens[sentence, beam] = rules.pad_token_id
            copy(old[0, : index + 1], new[beam])
        new[beam, index + 1] = (index + 1) * beams + beam


@njit
def insert_finished(rules, found, sentence, sequence, score):
    """Insert a hypothesis that has ended among the best of its sentence."""
    scores, sequences = found.finished_scores[sentence], found.finished_sequences[sentence]
    rank = len(scores)
    while rank and score > scores[rank - 1]:
        rank -= 1
    if rank < len(scores):
        for later in range(len(scores) - 1, rank, -1):
            scores[later] = scores[later - 1]
            copy(sequences[later - 1], sequences[later])
        scores[rank] = score
        copy(sequence, sequences[rank])
        sequences[rank, len(sequence)] = rules.end_token_id


@njit
def drop_done(rules, state, found, active, index):
    """Put the sentences that go on first; return how many they are."""
    number = 0
    for place in range(active):
        sentence = state.sentences[place]
        limit = rules.limits[sentence]
        bound = found.alive_scores[sentence, 0] / rules.penalties[limit]
        decided = found.finished_scores[sentence, rules.decisive_slot] > bound
        if index < limit and not decided and np.isfinite(bound):
            state.sentences[number] = sentence
            number += 1
    return number
