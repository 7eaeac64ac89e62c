"""Greedy search with drafts in one compiled call: what proposes tokens, and which of them the model chooses.

The rules are those of `decoding.drafted_search`, and what is proposed is what `LexicalDraft.propose` says,
number for number. Other drafts propose in Python, and have one pass verified a call.

Shape letters: L longest output, R rows of a pass, at most the lookahead and one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_attention.engine.base import CHILDREN, FOLLOWERS, KINDS, TOTAL, DraftTables
from keras_attention.engine.numba.compiling import njit
from keras_attention.engine.numba.search import SearchState, encode, step
from keras_attention.engine.numba.threads import is_stopped, wait

# Places of `DraftState.numbers`: tokens of the output; rows of the next pass; whether it must decide alone;
# the counts of a `DraftReport`; and how many tokens the source suggests.
NUMBERS = 7
LENGTH, ROWS, IS_CLOSE, STEPS, PROPOSED, ACCEPTED, SUGGESTED = range(NUMBERS)


class DraftRules(NamedTuple):
    """How tokens are proposed."""

    tables: DraftTables
    lookahead: int  # how many for a pass; 0 if Python proposes them
    margin: np.float32  # log-probabilities that differ by less are nearly equal
    tile: int  # rows of a pass that take as long as one
    least_share: float  # how probable all proposals must be for more than a tile of rows


class DraftState(NamedTuple):
    """What the passes have come to, and workspace for proposals."""

    tokens: np.ndarray  # int32 (1 + L + R,), the start token, the output, proposals
    numbers: np.ndarray  # int64 (7,), see `LENGTH`, ..
    score: np.ndarray  # float32 (1,), the sum of log-probabilities
    path: np.ndarray  # int64 (levels,), nodes of the last tokens
    candidates: np.ndarray  # int32 (most candidates,)
    probabilities: np.ndarray  # float64 (V,), zeros outside `propose`
    suggested: np.ndarray  # int32 (V,), tokens that the source suggests
    likelihoods: np.ndarray  # float64 (V,), their probabilities; of others 0


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
        look_up(drafting.tables, source.ids, progress)
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
            if token < 0 or (rows % drafting.tile == 0 and share < drafting.least_share):
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
    probabilities = progress.probabilities
    number, left = find_followers(tables, tokens, progress.path, candidates, probabilities)
    best, most, total = np.int64(-1), 0.0, left
    for place in range(number):
        token = candidates[place]
        value = probabilities[token] * ratio(tables, progress, token)
        total += value
        if value > most:
            best, most = np.int64(token), value
    suggestion, likelihood = suggest(progress, tokens)
    if left * likelihood > most:
        best, most = suggestion, left * likelihood
        total += most
    for place in range(number):
        probabilities[candidates[place]] = 0.0
    return best, most / total


@njit
def look_up(tables, source, progress):
    """Find what a source suggests, as `LexicalDraft` does in Python."""
    tokens, likelihoods, number = progress.suggested, progress.likelihoods, 0
    for id in source:
        if id + 1 < len(tables.lexicon_starts):
            for place in range(tables.lexicon_starts[id], tables.lexicon_starts[id + 1]):
                token = tables.lexicon_tokens[place]
                if likelihoods[token] == 0.0:
                    tokens[number] = token
                    number += 1
                likelihoods[token] += tables.lexicon_probabilities[place]
    for place in range(number):
        token = tokens[place]
        prior, probability = np.float64(tables.frequencies[token]), likelihoods[token] / len(source)
        own_share = 1.0 - tables.prior_share
        likelihoods[token] = tables.prior_share * prior + own_share * probability
    progress.numbers[SUGGESTED] = number


@njit
def ratio(tables, progress, token):
    """Return how much likelier the source makes a token."""
    likelihood = progress.likelihoods[token]
    if likelihood == 0.0:
        return tables.prior_share
    return likelihood / np.float64(tables.frequencies[token])


@njit
def suggest(progress, tokens):
    """Find the token that the source suggests most, of those that neither occurred nor follow in the text."""
    best, most = np.int64(-1), 0.0
    for place in range(progress.numbers[SUGGESTED]):
        token = np.int64(progress.suggested[place])
        likelihood = progress.likelihoods[token]
        is_better = likelihood > most or (likelihood == most and token < best)
        if is_better and progress.probabilities[token] == 0.0 and not is_in(tokens, token):
            best, most = token, likelihood
    return best, most


@njit
def find_followers(tables, tokens, path, candidates, probabilities):
    """Find what followed the last tokens, as `decoding.ngrams.continuations` does.

    Nodes are written to `path`, tokens to `candidates`, and added to `probabilities`, zero for all others.

    Returns:
        How many candidates there are, and the probability of any other token.
    """
    number, left = 0, 1.0
    for level in range(find_contexts(tables, tokens, path) - 1, -1, -1):
        node = path[level]
        context, after = tables.contexts[node], tables.contexts[node + 1]
        share = left / (context[TOTAL] + context[KINDS])
        for place in range(context[FOLLOWERS], after[FOLLOWERS]):
            token, count = tables.followers[place]
            if probabilities[token] == 0.0:
                candidates[number] = token
                number += 1
            probabilities[token] += share * count
        left = share * context[KINDS]
    return number, left


@njit
def find_contexts(tables, tokens, path):
    """Find the node of the last token, of the last two, .., as far as they are known; return how many."""
    begin, end, longest = 0, tables.roots, 0
    while longest < min(len(tokens), len(path)) and begin < end:
        token = tokens[len(tokens) - 1 - longest]
        place = begin + np.searchsorted(tables.nodes[begin:end], token)
        if place == end or tables.nodes[place] != token:
            break
        path[longest] = place
        longest += 1
        begin, end = tables.contexts[place, CHILDREN], tables.contexts[place + 1, CHILDREN]
    return longest


@njit
def is_in(tokens, token):
    """Return whether a token is among some."""
    for other in tokens:
        if other == token:
            return True
    return False
