"""Greedy search with drafts in one compiled call: what proposes tokens, and which of them the model chooses.

The rules are those of `decoding.drafted_search`, and what is proposed is what `LexicalDraft.propose` says,
number for number. Other drafts propose in Python, and have one pass verified a call.

Shape letters: L longest output, R rows of a pass, at most the lookahead and one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_attention.engine.base import DraftTables
from keras_attention.engine.numba.compiling import njit
from keras_attention.engine.numba.search import SearchState, encode, step
from keras_attention.engine.numba.threads import is_stopped, wait

# Places of `Progress.numbers`: tokens of the output; rows of the next pass; whether it must decide alone;
# and the counts of a `DraftReport`.
LENGTH, ROWS, IS_CLOSE, STEPS, PROPOSED, ACCEPTED = range(6)


class Drafting(NamedTuple):
    """How tokens are proposed."""

    tables: DraftTables
    lookahead: int  # how many for a pass; 0 if Python proposes them
    margin: np.float32  # log-probabilities that differ by less are nearly equal
    least_share: float  # how probable all proposals must be for one behind the first


class Progress(NamedTuple):
    """What the passes have come to, and workspace for proposals."""

    tokens: np.ndarray  # int32 (1 + L + R,), the start token, the output, proposals
    numbers: np.ndarray  # int64 (6,), see `LENGTH`, ..
    score: np.ndarray  # float32 (1,), the sum of log-probabilities
    candidates: np.ndarray  # int32 (most candidates,)
    probabilities: np.ndarray  # float64 (most candidates,)


def verify(
    model,
    encoder_workspace,
    workspace,
    group,
    source,
    rules,
    state,
    found,
    drafting,
    progress,
):
    """Search one sentence greedily with drafts, or run the one pass that Python planned.

    The tokens of a pass follow each other. Each has a slot of its position, and reads the slots up to it:
    `history` holds 0, 1, 2, .. for each.
    """
    numbers = progress.numbers
    if numbers[LENGTH] == 0:
        encode(model, encoder_workspace, group, source, state)
    if drafting.lookahead and group.rank == 0:
        plan_pass(rules, state, drafting, progress)
    wait(group)
    while numbers[ROWS]:
        fed = of_rows(state, numbers[ROWS])
        step(model, workspace, group, source, rules, fed, found, 1, numbers[LENGTH])
        if not drafting.lookahead:
            break
        if group.rank == 0:
            accept(rules, state, drafting, progress)
            plan_pass(rules, state, drafting, progress)
            if is_stopped(group):
                numbers[ROWS] = 0
        wait(group)


@njit
def of_rows(state, rows):
    """Return the state of a pass of so many rows."""
    slots = state.history.shape[3]
    return SearchState(
        state.sentences,
        state.active,
        state.tokens.reshape(-1)[:rows].reshape(1, rows),
        state.history.reshape(-1)[: 2 * rows * slots].reshape(2, 1, rows, slots),
        state.keys,
        state.values,
        state.cells,
        state.memory,
        state.logits,
        state.weights,
        state.log_probs,
        state.ids,
        state.scores,
        state.chosen,
        state.previous,
    )


@njit
def plan_pass(rules, state, drafting, progress):
    """Say which tokens the next pass reads: the last one, and what is proposed behind it."""
    numbers, tokens = progress.numbers, progress.tokens
    length = numbers[LENGTH]
    is_done = length >= rules.limits[0] or not np.isfinite(progress.score[0])
    if is_done or (length and tokens[length] == rules.end_token_id):
        numbers[ROWS] = 0
        return
    rows = 1
    if not numbers[IS_CLOSE] and length + 1 + drafting.lookahead <= rules.limits[0]:
        share = 1.0
        while rows <= drafting.lookahead:
            token, own_share = propose(drafting.tables, progress, length + rows)
            share *= own_share
            if token < 0 or (rows > 1 and share < drafting.least_share):
                break
            tokens[length + rows] = token
            rows += 1
    for row in range(rows):
        state.tokens[0, row] = tokens[length + row]
    numbers[ROWS] = rows
    numbers[PROPOSED] += rows - 1


@njit
def accept(rules, state, drafting, progress):
    """Keep the proposals that the model chooses itself, and its own choice behind them."""
    numbers, tokens = progress.numbers, progress.tokens
    proposed, made = numbers[ROWS] - 1, 0
    numbers[IS_CLOSE] = 0
    for row in range(numbers[ROWS]):
        scores, ids = state.log_probs[row], state.ids[row]
        # Products of several rows may be rounded in another way than those of one, which then decides.
        if proposed and len(ids) > 1 and scores[0] - scores[1] < drafting.margin:
            numbers[IS_CLOSE] = 1
            break
        progress.score[0] += scores[0]
        made += 1
        place = numbers[LENGTH] + made
        is_right = row < proposed and tokens[place] == ids[0]
        tokens[place] = ids[0]
        if ids[0] == rules.end_token_id or not is_right:
            break
    numbers[LENGTH] += made
    numbers[STEPS] += 1
    numbers[ACCEPTED] += min(made - 1 + numbers[IS_CLOSE], proposed)


@njit
def propose(tables, progress, length):
    """Find the token that most likely follows the first `length` of `tokens`.

    Returns:
        The token, -1 if none is known; and roughly how probable it is.
    """
    tokens, candidates = progress.tokens[:length], progress.candidates
    number, left = find_followers(tables, tokens, candidates, progress.probabilities)
    best, most, total = np.int64(-1), 0.0, left
    for place in range(number):
        value = progress.probabilities[place] * tables.ratios[candidates[place]]
        total += value
        if value > most:
            best, most = np.int64(candidates[place]), value
    for rank in range(len(tables.suggested)):
        value = left * tables.suggested_probabilities[rank]
        if value <= most:
            break
        token = tables.suggested[rank]
        if not is_in(tokens, token) and not is_in(candidates[:number], token):
            best, most, total = np.int64(token), value, total + value
            break
    return best, most / total


@njit
def find_followers(tables, tokens, candidates, probabilities):
    """Find what followed the last tokens, as `decoding.ngrams.continuations` does.

    Returns:
        How many candidates there are, and the probability of any other token.
    """
    size, number, left = len(tables.ratios), 0, 1.0
    deepest = find_context(tables, tokens, size, len(tables.bounds))
    while deepest[0]:
        level, node = deepest
        share = left / (tables.totals[node] + tables.kinds[node])
        for place in range(tables.begins[node], tables.ends[node]):
            token = tables.tokens[place]
            rank = 0
            while rank < number and candidates[rank] != token:
                rank += 1
            if rank == number:
                candidates[rank], probabilities[rank] = token, 0.0
                number += 1
            probabilities[rank] += share * tables.counts[place]
        left = share * tables.kinds[node]
        deepest = find_context(tables, tokens, size, level)
    return number, left


@njit
def find_context(tables, tokens, size, below):
    """Return the longest known context of fewer than `below` last tokens, or 0, and its node."""
    node, longest, found = 0, 0, 0
    for level in range(1, min(below, len(tokens) + 1)):
        begin, end = tables.bounds[level - 1], tables.bounds[level]
        key = np.int64(node) * size + tokens[len(tokens) - level]
        place = begin + np.searchsorted(tables.keys[begin:end], key)
        if place == end or tables.keys[place] != key:
            break
        node, longest, found = place - begin, level, place
    return longest, found


@njit
def is_in(tokens, token):
    """Return whether a token is among some."""
    for other in tokens:
        if other == token:
            return True
    return False
