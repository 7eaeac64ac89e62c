"""Beam search over a step function. It knows logits and a cache, but no model.

The algorithm is tensor2tensor's, which produced the paper's numbers: beam 4 and length penalty 0.6
(section 6.1 of "Attention Is All You Need"; Wu et al. 2016, equation 14).
The moves of each step, `grow_topk`, `grow_alive` and `grow_finished`, are in `hypotheses.py`.

Shape letters: B sentences, W beams, C candidates, L longest hypothesis, V vocabulary.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, Protocol

import keras
import numpy as np
from annotated_types import Ge, Le
from keras import ops

from keras_attention.decoding.hypotheses import (
    EMPTY,
    RANKS,
    BeamSearchResult,
    Continuations,
    SearchRules,
    StoppingRule,
    first_beams,
    grow,
    is_decided,
    num_candidates,
    penalty,
    result,
    select,
)
from keras_attention.decoding.sampled_tokens import sampled_tokens
from keras_attention.engine.base import Beams
from keras_attention.utils.arguments import BeamSize, Has, LengthPenalty, checked
from keras_attention.utils.checks import check_integer, check_numbers, static_shape

Step = Callable[[Any, Any, Any], tuple[Any, Any]]
# Tokens in the buffers of the results, which a search keeps twice.
LARGEST_RESULT = 2**28
LARGEST_ID = 2**31 - 1


def check_states(
    state: Any,
    rows: int | None,
    beam_size: int,
    name: str = "The states of a constraint",
    constraint: Any = None,
) -> Any:
    """Return the states of a batch; raise a ValueError unless all are tensors (B, W, ...).

    Those of a `constraint` with the attribute `parts` must be a dict with these keys.
    """
    parts = getattr(constraint, "parts", ())
    if parts and not (isinstance(state, Mapping) and state.keys() >= {*parts}):
        raise ValueError(
            f"{name} must be what its `start` returns, with {', '.join(parts)}. Received: "
            f"{reprlib.repr(state)}"
        )
    for leaf in keras.tree.flatten(state):
        shape = (static_shape(leaf) if hasattr(leaf, "shape") else ()) or ()
        fits = len(shape) > 1 and shape[0] in (None, rows) and shape[1] in (None, beam_size)
        if not fits and rows is not None:
            raise ValueError(
                f"{name} must be tensors ({rows}, {beam_size}, ...), for the sentences and the beams of the "
                f"batch. Received: {reprlib.repr(leaf) if not shape else f'one of shape {shape}'}. Give each "
                "sentence an entry, for the beam size of the search."
            )
    return state


def check_step(results: Any, cache: Any, rows: int | None, beam_size: int, end: int) -> Any:
    """Return what a step function returned; raise a ValueError unless it is logits and such a cache."""
    if not isinstance(results, tuple | list) or len(results) != 2:
        raise ValueError(f"`step` must return (logits, cache). Received: {reprlib.repr(results)}")
    logits, new_cache = results
    logits = check_numbers("logits of step", logits, "BWV", B=rows, W=beam_size)
    size = logits.shape[-1]
    if isinstance(size, int) and end >= size:
        raise ValueError(
            f"`end_token_id` must be one of the {size} tokens that `step` gives logits for. Received: "
            f"end_token_id={end}"
        )
    before, after = (
        [static_shape(leaf) if hasattr(leaf, "shape") else () for leaf in keras.tree.flatten(part)]
        for part in (cache, new_cache)
    )
    if len(before) != len(after) or not all(map(_agree, before, after)):
        raise ValueError(
            "`step` must return the cache with the shapes that it had: "
            f"{reprlib.repr(before)}. Received: {reprlib.repr(after)}"
        )
    return logits, new_cache


def _agree(shape: Any, other: Any) -> bool:
    """Whether two shapes may be the same, as far as they are known."""
    if shape is None or other is None:
        return True
    return len(shape) == len(other) and all(
        None in sizes or sizes[0] == sizes[1] for sizes in zip(shape, other, strict=True)
    )


class Constraint(Protocol):
    """A constraint on hypotheses: a state for each hypothesis, and the tokens allowed in that state.

    Like `step`, it may use only `keras.ops`, on tensors (B, W, ...): it is traced with the search.
    Log-probabilities stay those of the model; tokens that are not allowed are just not chosen.
    `decoding.constraints` has some constraints. A constraint may also have

    * `rescore(logits, state, index)`, which returns other logits (B, W, V) to score with;
    * `goals(state, logits)`, if hypotheses must reach something: it returns the tokens (B, W, P), int32, that
      would bring each nearer, -1 for none; or None for no goals. With it, `reached(state, token_ids)` returns
      how far each would have come with these tokens, (B, W, C) both, int32. Such tokens are then considered
      however unlikely they are, and beams are shared out between hypotheses that have come equally far, so
      that those that have begun are not lost to those that have not.
    """

    def allowed(self, state: Any, index: Any) -> Any:
        """Return (B, W, V) bool: the tokens that hypotheses in these states may have at `index`."""

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        """Return the states after the tokens (B, W) at position `index`."""


class Choice(NamedTuple):
    """What chooses the tokens of a search, besides their scores."""

    constraint: Constraint | None = None
    state: Any = ()  # the constraint's states before the first token
    uniforms: Any = None  # (B, L), the random numbers that `SearchRules.sampling` needs


@checked
def beam_search(
    step: Step,
    cache: Any,
    max_lengths: Any,
    beam_size: BeamSize = 4,
    *,
    start_token_id: Annotated[int, Ge(0), Le(LARGEST_ID)],
    end_token_id: Annotated[int, Ge(0), Le(LARGEST_ID)],
    pad_token_id: Annotated[int, Le(LARGEST_ID)] = 0,
    length_penalty: LengthPenalty = 0.6,
    stop: StoppingRule = "best",
    max_length: int | None = None,
    constraint: Annotated[Constraint, Has("a constraint", "allowed", "advance")] | None = None,
    constraint_state: Any = None,
) -> BeamSearchResult:
    """Search for the most probable sequences under a step function.

    Each sentence is searched independently: it has its own maximum length and its own end, and its result
    does not depend on the rest of the batch. The loop ends when all sentences have ended. The code uses
    only `keras.ops`: it runs eagerly, in a `tf.function`, which need not know the number of sentences,
    and in `jax.jit`.

    The score of a hypothesis of `n` tokens, EOS included, is its log-probability divided by
    `((5 + n) / 6) ** length_penalty`. Each step considers the best `2 * beam_size` continuations; an EOS
    that is not among them is lost. `beam_size=1` is greedy search: it considers only the best
    continuation, and ends when that is EOS.

    A beam larger than the vocabulary works: there are fewer candidates in the first steps, and slots stay
    empty if there are fewer than `beam_size` hypotheses.

    Args:
        step: `step(token_ids (B, W), index, cache) -> (logits (B, W, V), cache)`. `index` is the
            position of `token_ids`, from 0, where the start token is fed. Log-probabilities are
            computed from the logits in float32.
        cache: Pytree of tensors (B, W, ...), in which `step` keeps what it needs of the hypotheses. It
            is reordered together with them.
        max_lengths: (B,) int, the longest hypothesis allowed for each sentence, EOS included. A
            sentence with 0 is not searched and has only empty slots, which is useful for dummy rows.
        beam_size: Number of hypotheses W to keep. Defaults to 4.
        start_token_id: Token fed at position 0. It is not part of the results.
        end_token_id: The EOS token.
        pad_token_id: Filler after the end of a sequence. Defaults to 0.
        length_penalty: The paper's alpha, at least 0; 0 compares plain log-probabilities. Defaults to
            0.6.
        stop: When a sentence ends before its maximum length. All rules use the bound
            `best alive log-probability / penalty(maximum length)`, which no alive hypothesis can
            exceed. `"best"`: when the best finished score exceeds it, so the best result is certain.
            `"n_best"`: when all W finished scores exceed it. `"n_best_2017"`: when the finished scores
            so far exceed it (tensor2tensor from June 2017 to November 2018). Defaults to `"best"`.
        max_length: L, the static size of the results. Defaults to the largest of `max_lengths`; needed
            if their values are unknown when the graph is traced.
        constraint: A `Constraint` on the hypotheses; None for none.
        constraint_state: Pytree of tensors (B, W, ...), the constraint's states before the first token.

    Returns:
        A `BeamSearchResult`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> def step(token_ids, index, cache):  # over a, EOS, b; the next token depends on the last one
    ...     table = ops.log(ops.array([[.4, .05, .55], [1/3, 1/3, 1/3], [.05, .45, .5]]))
    ...     return ops.take(table, token_ids, axis=0), cache
    >>> result = beam_search(step, {}, [6], beam_size=2, start_token_id=0, end_token_id=1)
    >>> [int(token) for token in result.sequences[0, 0]], round(float(result.scores[0, 0]), 4)
    ([2, 1, 0, 0, 0, 0], -1.273)
    """
    max_lengths = check_numbers("max_lengths", max_lengths, "B")
    is_wrong = "int" not in str(max_lengths.dtype)
    if is_wrong or (isinstance(max_lengths, np.ndarray) and max_lengths.min(initial=0) < 0):
        raise ValueError(
            "`max_lengths` must hold an integer of at least 0 for each sentence. "
            f"Received: max_lengths={max_lengths!r}"
        )
    if max_length is None:
        max_length = max(1, int(ops.convert_to_numpy(max_lengths).max(initial=1)))
    (rows,) = static_shape(max_lengths) or (None,)
    check_integer("max_length", max_length, 1, LARGEST_RESULT // (rows or 1) // beam_size)
    check_states(cache, rows, beam_size, "`cache`: all")
    rules = SearchRules(beam_size, start_token_id, end_token_id, pad_token_id, length_penalty)
    choice = Choice() if constraint is None else Choice(constraint, constraint_state)
    found = find_hypotheses(Steps(step, cache), max_lengths, rules, RANKS[stop], max_length, choice)
    return result(*found, rules, ops)


def reorder(cache: Any, parents: Any) -> Any:
    """Return the cache of the hypotheses that continue."""
    return keras.tree.map_structure(lambda leaf: select(leaf, parents, ops), cache)


class Steps(NamedTuple):
    """What a search computes with: a step function, its first cache, and what reorders a cache."""

    step: Step
    cache: Any
    reorder: Callable[[Any, Any], Any] = reorder


def find_hypotheses(
    steps: Steps, max_lengths: Any, rules: SearchRules, rank: Any, max_length: Any, choice: Choice
) -> tuple[Beams, Any]:
    """Do what `beam_search` says, and return what `hypotheses.result` takes. It has no infinite numbers.

    `rank` is that of the stopping rule; `choice` says what chooses tokens, besides their scores.
    """
    constraint, state, uniforms = choice
    (rows,) = static_shape(max_lengths) or (None,)
    max_lengths = ops.clip(ops.cast(ops.convert_to_tensor(max_lengths), "int32"), 0, max_length)
    penalties = penalty(ops.cast(max_lengths, "float32"), rules.length_penalty, ops)

    def advance(index, done, tokens, beams, cache, state):
        results = steps.step(tokens, index, cache)
        logits, cache = check_step(results, cache, rows, rules.beam_size, rules.end_token_id)
        drawn = None if uniforms is None else ops.take(uniforms, index, axis=1)
        best = continuations(logits, rules, constraint, state, index, drawn)
        grown, tokens, parents = grow(beams, best, index, rules, ops)
        cache = steps.reorder(cache, parents)
        if constraint is not None:
            state = constraint.advance(reorder(state, parents), tokens, index)
        grown = _frozen(done, beams, grown)
        index = index + 1
        done = done | is_decided(rank, grown, penalties, ops) | (index >= max_lengths)
        return index, done, tokens, grown, cache, state

    if constraint is not None:
        check_states(state, rows, rules.beam_size, constraint=constraint)
    number = ops.shape(max_lengths)[0]
    tokens = ops.full((number, rules.beam_size), rules.start_token_id, dtype="int32")
    beams = first_beams(number, max_length, rules, ops)
    first = (ops.zeros((), dtype="int32"), max_lengths <= 0, tokens, beams, steps.cache, state)
    last = ops.while_loop(lambda _, done, *others: ops.logical_not(ops.all(done)), advance, first)
    return last[3], max_lengths


def _frozen(done: Any, before: Beams, after: Beams) -> Beams:
    """Return the new beams, but the old ones for sentences that are done."""

    def choose(old, new):
        return ops.where(ops.reshape(done, (-1,) + (1,) * (len(old.shape) - 1)), old, new)

    return Beams(*map(choose, before, after))


def continuations(logits, rules: SearchRules, constraint, state, index, uniforms) -> Continuations:
    """Return the likeliest tokens of each hypothesis that a constraint allows, and those that it waits for.

    Logits (B, W, V) are of any float dtype, `state` is the constraint's, and `uniforms` (B,) are random
    numbers, if `rules` say that tokens are drawn.
    """
    if constraint is None:
        return Continuations(*best_tokens(logits, rules, None, uniforms))
    allowed = constraint.allowed(state, index)
    logits = rescored(constraint, logits, state, index)
    # One beam cannot be shared out.
    wanted = goals_of(constraint, state, logits) if rules.beam_size > 1 else None
    if wanted is None:
        return Continuations(*best_tokens(logits, rules, allowed, uniforms))
    scores, tokens = best_tokens(logits, rules, allowed, wanted=wanted)
    return Continuations(scores, tokens, constraint.reached(state, tokens))


def best_tokens(logits, rules: SearchRules, allowed=None, uniforms=None, wanted=None):
    """Return the likeliest tokens of each hypothesis, or the drawn one.

    Args:
        logits: (B, W, V) logits of the next token, of any float dtype.
        allowed: (B, W, V) bool, the tokens that may follow; None for all. The others score about `EMPTY`.
        uniforms: (B,) random numbers, if `rules` say that tokens are drawn.
        wanted: (B, W, P) further tokens, whatever their score, -1 for none. One that is there already
            scores about `EMPTY`.

    Returns:
        Log-probabilities, float32, and ids, int32, (B, W, C) each, best first, but for the wanted.
    """
    batch_size, beam_size, vocabulary_size = ops.shape(logits)
    width = min(num_candidates(rules.beam_size), vocabulary_size)
    # Two axes, as the fast top-k of each backend needs.
    logits = ops.cast(ops.reshape(logits, (-1, vocabulary_size)), "float32")
    choice = logits
    if allowed is not None:
        sizes = {"W": beam_size, "V": vocabulary_size}
        known = {letter: size for letter, size in sizes.items() if isinstance(size, int)}
        allowed = check_numbers("allowed tokens of the constraint", allowed, "BWV", **known)
        allowed = ops.reshape(allowed, (-1, vocabulary_size))
        choice = ops.where(allowed, logits, EMPTY)
    if rules.sampling is None:
        best, tokens = ops.top_k(choice, width)
    else:
        tokens = sampled_tokens(choice, uniforms, rules.sampling)
        best = ops.take_along_axis(choice, tokens, axis=1)
    if wanted is not None:
        wanted = ops.reshape(wanted, (-1, wanted.shape[-1]))
        tokens = ops.concatenate([ops.cast(tokens, "int32"), wanted], axis=1)
        places = ops.arange(tokens.shape[1])
        is_same = ops.equal(wanted[:, :, None], tokens[:, None])
        is_there = ops.any(is_same & (places < places[width:, None]), axis=2)
        is_new = (wanted >= 0) & ops.logical_not(is_there)
        tokens = ops.maximum(tokens, 0)
        scores = ops.take_along_axis(choice, tokens[:, width:], axis=1)
        best = ops.concatenate([best, ops.where(is_new, scores, EMPTY)], axis=1)
        width = tokens.shape[1]
    if not rules.are_scores:  # Only the chosen need the softmax's normalisation.
        best = best - ops.logsumexp(logits, axis=-1, keepdims=True)
    shape = (batch_size, beam_size, width)
    return ops.reshape(best, shape), ops.cast(ops.reshape(tokens, shape), "int32")


def goals_of(constraint, state, logits):
    """Return the tokens that a constraint waits for, if it waits for any."""
    goals = getattr(constraint, "goals", None)
    return None if goals is None else goals(state, logits)


def reached_by(constraint, state, token_ids):
    """Return how far hypotheses would have come to what a constraint waits for."""
    reached = getattr(constraint, "reached", None)
    return 0 if reached is None else reached(state, token_ids)


def rescored(constraint, logits, state, index):
    """Return the logits as the constraint wants them, if it does."""
    rescore = getattr(constraint, "rescore", None)
    return logits if rescore is None else rescore(logits, state, index)
