"""What may follow a hypothesis, and random tokens: `decoding.token_rules` and `decoding.sampled_tokens`.

Shape letters: B sentences, L longest hypothesis, V vocabulary, P tokens of a prefix or phrase.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_attention.engine.numba.attention import exponentials
from keras_attention.engine.numba.compiling import ANY_ORDER, njit
from keras_attention.engine.numba.layers import CHUNK, NEG_INF, ONE, ZERO, copy, find_largest

# Bits of the float32 number 1.0; those of smaller numbers are smaller, in the same order.
BITS_OF_ONE = 127 << 23


class Choice(NamedTuple):
    """How the tokens of a search are chosen."""

    is_plain: bool  # the likeliest tokens are, of all
    is_restricted: bool
    ngram: int  # no n-gram of this size occurs twice; 0 for no such rule
    min_length: int  # in tokens, without the end
    max_length: int  # 0 for no such rule
    end_token_id: int
    banned: np.ndarray  # int32 (phrases, P), token sequences that do not occur; -1 behind
    prefixes: np.ndarray  # int32 (B, P), -1 behind
    temperature: float  # 0 for the likeliest tokens
    top_k: int
    top_p: float
    uniforms: np.ndarray  # float32 (B, L), a random number for each token


@njit
def choose(choice, sentence, tokens, index, logits, weights, values, ids):
    """Find the likeliest allowed tokens of a row, or draw one; what is not allowed scores -inf.

    Args:
        choice: How.
        sentence: The row's sentence.
        tokens: int32 (L,), the hypothesis so far.
        index: How many tokens it has.
        logits, weights: float32 (V,), the row's logits, and as much workspace; both are overwritten.
        values, ids: Of `top_log_probs`.
    """
    find_largest(logits, values, ids)
    copy(logits, weights)
    largest = values[0]
    normalizer = largest + np.log(exponentials(weights, largest))
    if choice.is_restricted:
        restrict(choice, sentence, tokens, index, logits)
        find_largest(logits, values, ids)
    if choice.temperature > 0.0:
        if choice.is_restricted or choice.temperature != 1.0:
            largest, scale = values[0], np.float32(1.0 / choice.temperature)
            for i in range(len(logits)):
                weights[i] = (logits[i] - largest) * scale
            exponentials(weights, ZERO)
            for i in range(len(logits)):
                weights[i] = ZERO if logits[i] == NEG_INF else weights[i]
        if 0 < choice.top_k < len(weights):
            drop_small(weights, np.float32(choice.top_k), True)
        if choice.top_p < 1.0:
            drop_small(weights, np.float32(choice.top_p) * sum_from(weights, ZERO, False), False)
        ids[0] = place_of(weights, choice.uniforms[sentence, index])
        values[0] = logits[ids[0]]
    for rank in range(len(values)):
        values[rank] -= normalizer


@njit
def restrict(choice, sentence, tokens, index, logits):
    """Let the logits of all tokens that may not follow be -inf."""
    prefixes, banned, size = choice.prefixes, choice.banned, choice.ngram
    forced = choice.end_token_id if 0 < choice.max_length <= index else -1
    if index < prefixes.shape[1] and prefixes[sentence, index] >= 0:
        forced = prefixes[sentence, index]
    if forced >= 0:
        logit = logits[forced]
        logits[:] = NEG_INF
        logits[forced] = logit
        return
    if index < choice.min_length:
        logits[choice.end_token_id] = NEG_INF
    if size > 0:
        for start in range(index - size + 1):
            if follows(tokens, start, tokens, index, size - 1):
                logits[tokens[start + size - 1]] = NEG_INF
    for phrase in range(len(banned)):
        length = 0
        while length < banned.shape[1] and banned[phrase, length] >= 0:
            length += 1
        if follows(banned[phrase], 0, tokens, index, length - 1):
            logits[banned[phrase, length - 1]] = NEG_INF


@njit
def follows(sequence, start, tokens, index, number):
    """Whether so many tokens of a sequence from `start` on are the last ones of the first `index` tokens."""
    if number > index:
        return False
    for i in range(number):
        if sequence[start + i] != tokens[index - number + i]:
            return False
    return True


@njit
def drop_small(weights, wanted, is_counted):
    """Let weights be 0, except the largest whose number or sum is at least `wanted`, and those as large.

    No weight is above 1. Their bits are halved until only one number is left.
    """
    low, high = 0, BITS_OF_ONE + 1
    while high - low > 1:
        middle = (low + high) // 2
        if sum_from(weights, number_of(middle), is_counted) >= wanted:
            low = middle
        else:
            high = middle
    least = number_of(low)
    for i in range(len(weights)):
        weights[i] = weights[i] if weights[i] >= least else ZERO


@njit
def number_of(bits):
    """Return the float32 number with these bits."""
    return np.float32((1.0 + (bits & 0x7FFFFF) * 2.0**-23) * 2.0 ** ((bits >> 23) - 127))


@njit(fastmath=ANY_ORDER)
def sum_from(weights, least, is_counted):
    """Return the sum of the weights of at least `least`, or their number."""
    total = ZERO
    if is_counted:
        for i in range(len(weights)):
            total += ONE if weights[i] >= least else ZERO
    else:
        for i in range(len(weights)):
            total += weights[i] if weights[i] >= least else ZERO
    return total


@njit
def place_of(weights, uniform):
    """Return where the running sum of the weights exceeds a part `uniform` of all; never where none is.

    In two steps, because small weights would be lost in one sum over a large vocabulary.
    """
    wanted = uniform * sum_from(weights, ZERO, False)
    place, rest, total = 0, ZERO, ZERO
    for start in range(0, len(weights), CHUNK):
        own = sum_from(weights[start : start + CHUNK], ZERO, False)
        if own > ZERO:
            place, rest = start, wanted - total
            if total + own > wanted:
                break
            total += own
    total, chosen = ZERO, place
    for i in range(place, min(place + CHUNK, len(weights))):
        if weights[i] > ZERO:
            chosen = i
            total += weights[i]
            if total > max(rest, ZERO):
                break
    return chosen
