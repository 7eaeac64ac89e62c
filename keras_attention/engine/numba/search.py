"""A whole beam search by Numba: encoder, steps and the beams' books in one compiled call.

The rules are those of `decoding.hypotheses`, whose numbers come in: the penalty of each length, and the
slot of the finished hypothesis that must be certain. A sentence that is done leaves the batch: the rows of
a step are those of the sentences that are left.

A beam's history is the list of its slots in the sentence's buffer of keys and values: step t writes the
slots t W to t W + W - 1. When beams are reordered, only these lists are.

Shape letters: B sentences, W beams, L longest hypothesis, R = B W rows, T source tokens without padding,
D hidden_dim, V vocabulary, C candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_attention.engine.numba.layers import (
    ANYTHING,
    CROSS,
    CROSS_NORM,
    CROSS_OUTPUT,
    MEMORY,
    SELF,
    SELF_NORM,
    SELF_OUTPUT,
    attend_row,
    feed_forward,
    input_product,
    is_stopped,
    keep,
    last_norm,
    output_product,
    own_rows,
    product,
    top_log_probs,
    wait,
)
from keras_attention.engine.numba.llvm import address, njit_cached

NOTHING = np.float32(-np.inf)


class Source(NamedTuple):
    """The sentences to translate."""

    ids: np.ndarray  # int32 (T,), one sentence behind the other
    places: np.ndarray  # int64 (T,), of each token in its sentence
    ends: np.ndarray  # int64 (B + 1,), where each sentence begins, and the last one ends
    positions: np.ndarray  # float32 (S, D)
    all_places: np.ndarray  # int64 (S + 16,), 0, 1, 2, ..


class Rules(NamedTuple):
    """What is searched for; see `decoding.hypotheses`."""

    limits: np.ndarray  # int64 (B,), the longest hypothesis of each sentence
    penalties: np.ndarray  # float32 (L + 1,), of each length
    decisive_slot: int
    end_token_id: int
    pad_token_id: int
    positions: np.ndarray  # float32 (L, D)


class Found(NamedTuple):
    """What is known of each sentence's hypotheses."""

    alive_sequences: np.ndarray  # int32 (B, W, L)
    alive_scores: np.ndarray  # float32 (B, W), log-probabilities, descending
    finished_sequences: np.ndarray  # int32 (B, W, L)
    finished_scores: np.ndarray  # float32 (B, W), penalised, descending


class Books(NamedTuple):
    """What steps remember."""

    sentences: np.ndarray  # int64 (B,), those that are left come first
    left: np.ndarray  # int64 (1,), how many they are
    steps: np.ndarray  # int64 (1,), of all sentences together
    tokens: np.ndarray  # int32 (B, W), what is fed next
    history: np.ndarray  # int64 (2, B, W, L + 16), slots of each beam, in turns
    values: np.ndarray  # float32 (R, C), log-probabilities of each row's likeliest tokens
    ids: np.ndarray  # int32 (R, C)
    keys: np.ndarray  # kept (blocks, B, L W, N key_dim)
    kept_values: np.ndarray  # kept (blocks, B, L W, N value_dim)
    memory: np.ndarray  # kept (blocks, T, N (key_dim + value_dim))
    logits: np.ndarray  # float32 (R, V)
    scores: np.ndarray  # float32 (B, C), of each sentence's best candidates
    chosen: np.ndarray  # int64 (B, C), which they are
    before: np.ndarray  # int32 (B, W, L), the sequences that they continue


@njit_cached()
def search(model, encoder_room, room, team, source, rules, books, found):
    """Encodes and searches to the end, or until it is stopped; called by each thread of a team."""
    encode(model, encoder_room, team, source, books)
    index = 0
    while books.left[0] > 0:
        left = books.left[0]
        step(model, room, team, source, rules, books, left, index)
        first, last = own_rows(team, left, 1)
        for place in range(first, last):
            grow(rules, books, found, place, index)
        wait(team)
        index += 1
        if team.thread == 0:
            books.steps[0] += left
            left = drop_done(rules, books, found, left, index)
            books.left[0] = 0 if is_stopped(team) else left
        wait(team)


@njit_cached()
def embed(model, ids, pad_token_id, position, output):
    """A token's row of the table, scaled, plus its position."""
    scale = np.float32(np.sqrt(np.float32(len(output))))
    if ids == pad_token_id:
        scale = np.float32(0.0)
    row = model.table[ids]
    for d in range(len(output)):
        output[d] = row[d] * scale + position[d]


@njit_cached()
def encode(model, room, team, source, books):
    """The encoder, and every decoder block's keys and values of its output."""
    stack, rows = model.encoder, len(source.ids)
    heads, key_dim, value_dim = model.heads
    first, last = own_rows(team, rows, model.tiling.group)
    for row in range(first, last):
        embed(model, source.ids[row], -1, source.positions[source.places[row]], room.x[row])
    sentences, memory = len(source.ends) - 1, books.memory[0]
    for block in range(len(stack.products)):
        input_product(model, stack, room, team, block, SELF, SELF_NORM, rows)
        keep_rows(model, room, heads * key_dim, memory, first, last)
        wait(team)
        for task in range(team.thread, sentences * heads, team.threads):
            sentence, head = task // heads, task % heads
            begin, end = source.ends[sentence], source.ends[sentence + 1]
            attend_to_source(model, room, team, source, memory, sentence, head, begin, end)
        output_product(model, stack, room, team, block, SELF_OUTPUT, SELF_NORM, rows)
        feed_forward(model, stack, room, team, block, rows)
    last_norm(model, stack, room, team, rows)
    for block in range(len(model.decoder.products)):
        numbers = model.decoder.products[block, MEMORY]
        product(model, room, team, rows, numbers, ANYTHING, room.wide)
        keep_rows(model, room, 0, books.memory[block], first, last)


@njit_cached()
def keep_rows(model, room, begin, memory, first, last):
    """Stores each row's keys and values, which begin at a column of `room.wide`."""
    for row in range(first, last):
        numbers, output = address(room.wide, row, begin), address(memory, row, 0)
        keep(model.kept, numbers, output, memory.shape[1])


@njit_cached()
def step(model, room, team, source, rules, books, left, index):
    """Feeds every beam of the sentences that are left its token; finds the likeliest next ones."""
    stack, heads = model.decoder, model.heads[0]
    beams = books.tokens.shape[1]
    rows = left * beams
    first, last = own_rows(team, rows, model.tiling.group)
    position = rules.positions[index]
    for row in range(first, last):
        token = books.tokens[books.sentences[row // beams], row % beams]
        embed(model, token, rules.pad_token_id, position, room.x[row])
    for block in range(len(stack.products)):
        input_product(model, stack, room, team, block, SELF, SELF_NORM, rows)
        attend_to_history(model, room, team, books, left, block, index)
        output_product(model, stack, room, team, block, SELF_OUTPUT, SELF_NORM, rows)
        input_product(model, stack, room, team, block, CROSS, CROSS_NORM, rows)
        memory = books.memory[block]
        for task in range(team.thread, left * heads, team.threads):
            place, head = task // heads, task % heads
            attend_to_source(
                model, room, team, source, memory, books.sentences[place], head,
                place * beams, (place + 1) * beams,
            )  # fmt: skip
        output_product(model, stack, room, team, block, CROSS_OUTPUT, CROSS_NORM, rows)
        feed_forward(model, stack, room, team, block, rows)
    last_norm(model, stack, room, team, rows)
    product(model, room, team, rows, model.softmax, ANYTHING, books.logits)
    first, last = own_rows(team, rows, 1)
    for row in range(first, last):
        top_log_probs(books.logits[row], books.values[row], books.ids[row])
    wait(team)


@njit_cached()
def attend_to_history(model, room, team, books, left, block, index):
    """Each beam's attention to its own history; its new keys and values come into the buffer."""
    heads, key_dim, value_dim = model.heads
    beams, size = books.tokens.shape[1], model.kept.itemsize
    for task in range(team.thread, left * heads, team.threads):
        place, head = task // heads, task % heads
        sentence = books.sentences[place]
        keys = books.keys[block, sentence].ctypes.data + size * head * key_dim
        values = books.kept_values[block, sentence].ctypes.data + size * head * value_dim
        of_keys = (keys, books.keys.strides[2])
        of_values = (values, books.kept_values.strides[2])
        for beam in range(beams):
            row, slot = place * beams + beam, index * beams + beam
            at_key = address(room.wide, row, (heads + head) * key_dim)
            at_value = address(room.wide, row, 2 * heads * key_dim + head * value_dim)
            keep(model.kept, at_key, keys + slot * books.keys.strides[2], key_dim)
            keep(model.kept, at_value, values + slot * books.kept_values.strides[2], value_dim)
        for beam in range(beams):
            places = books.history[index % 2, sentence, beam].ctypes.data
            row = place * beams + beam
            attend_row(model, room, team, of_keys, of_values, places, index + 1, row, head)


@njit_cached()
def attend_to_source(model, room, team, source, memory, sentence, head, first, last):
    """One head of rows: attention to the tokens of a sentence, whose keys and values are `memory` (T, ..)."""
    heads, key_dim, value_dim = model.heads
    begin, end = source.ends[sentence], source.ends[sentence + 1]
    keys = (address(memory, begin, head * key_dim), memory.strides[0])
    values = (address(memory, begin, heads * key_dim + head * value_dim), memory.strides[0])
    places = source.all_places.ctypes.data
    for row in range(first, last):
        if is_stopped(team):
            break
        attend_row(model, room, team, keys, values, places, end - begin, row, head)


@njit_cached()
def grow(rules, books, found, place, index):
    """The beams of one sentence go on: the best candidates, of which some end."""
    sentence, beams = books.sentences[place], books.tokens.shape[1]
    width = books.values.shape[1]
    scores, chosen = books.scores[place], books.chosen[place]
    number, count = len(scores), 0
    for candidate in range(beams * width):
        beam, column = candidate // width, candidate % width
        score = found.alive_scores[sentence, beam] + books.values[place * beams + beam, column]
        slot = count
        # Ties go to the first; what is not a number comes last.
        while slot and (
            score > scores[slot - 1] or (np.isnan(scores[slot - 1]) and score == score)
        ):
            slot -= 1
        if slot < number:
            count = min(count + 1, number)
            for later in range(count - 1, slot, -1):
                scores[later], chosen[later] = scores[later - 1], chosen[later - 1]
            scores[slot], chosen[slot] = score, candidate
    old, new = books.history[index % 2, sentence], books.history[(index + 1) % 2, sentence]
    sequences, before = found.alive_sequences[sentence], books.before[place]
    for beam in range(beams):
        copy_first(sequences[beam], before[beam], index)
    found.alive_scores[sentence] = NOTHING
    alive = 0
    for rank in range(number):
        beam, column = chosen[rank] // width, chosen[rank] % width
        token = books.ids[place * beams + beam, column]
        if token == rules.end_token_id:
            score = scores[rank] / rules.penalties[index + 1]
            finish(rules, found, sentence, before[beam], index, score)
        elif alive < beams and scores[rank] > NOTHING:
            found.alive_scores[sentence, alive] = scores[rank]
            copy_first(before[beam], sequences[alive], index)
            sequences[alive, index] = token
            books.tokens[sentence, alive] = token
            copy_first(old[beam], new[alive], index + 1)
            alive += 1
    for beam in range(beams):
        if beam >= alive:  # nobody: it computes something finite, which is never chosen
            books.tokens[sentence, beam] = rules.pad_token_id
            copy_first(old[0], new[beam], index + 1)
        new[beam, index + 1] = (index + 1) * beams + beam


@njit_cached()
def copy_first(numbers, output, number):
    """Copies the first numbers of an array to those of another."""
    for i in range(number):
        output[i] = numbers[i]


@njit_cached()
def finish(rules, found, sentence, sequence, index, score):
    """Enters a hypothesis that has ended among the best of its sentence."""
    scores, sequences = found.finished_scores[sentence], found.finished_sequences[sentence]
    slot = len(scores)
    while slot and score > scores[slot - 1]:
        slot -= 1
    if slot < len(scores):
        for later in range(len(scores) - 1, slot, -1):
            scores[later] = scores[later - 1]
            copy_first(sequences[later - 1], sequences[later], len(sequence))
        scores[slot] = score
        copy_first(sequence, sequences[slot], index)
        sequences[slot, index] = rules.end_token_id


@njit_cached()
def drop_done(rules, books, found, left, index):
    """Puts the sentences that go on first; returns how many they are."""
    number = 0
    for place in range(left):
        sentence = books.sentences[place]
        limit = rules.limits[sentence]
        bound = found.alive_scores[sentence, 0] / rules.penalties[limit]
        decided = found.finished_scores[sentence, rules.decisive_slot] > bound
        if index < limit and not decided and np.isfinite(bound):
            books.sentences[number] = sentence
            number += 1
    return number
