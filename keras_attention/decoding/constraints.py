"""Constraints for the beam search: forced prefixes and required phrases.

A constraint is created once for a vocabulary; its `start` returns the `constraint_state` of a batch. All
constraints run in a compiled search on every backend. Log-probabilities remain those of the model.

Shape letters: B sentences, W beams, V vocabulary, P tokens of a prefix or phrase, C phrases.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import keras
import numpy as np
from annotated_types import Ge, Le
from keras import ops

from keras_attention.data.joints import Joints
from keras_attention.decoding.hypotheses import EMPTY
from keras_attention.decoding.plain_search import (
    Constraint,
    check_states,
    goals_of,
    reached_by,
    rescored,
)
from keras_attention.utils.arguments import BeamSize, Has, check_fields, checked
from keras_attention.utils.checks import check_integer, counted, shown


class NoRoom(ValueError):
    """What a constraint needs of a sentence of a batch is longer than its longest hypothesis."""

    def __init__(self, row: int, need: str, length: int, max_length: int) -> None:
        self.row = row
        self.problem = (
            f"needs {need}, with the end {length} tokens. Received: max_lengths[{row}]={max_length}"
        )
        super().__init__(f"Sentence {row} {self.problem}")


# Kinds of tokens in `RequiredPhrases`, as bits of one number.
CONTINUES, GOES_ON, END = 1, 2, 4
VocabularySize = Annotated[int, Ge(1), Le(10**7)]


@dataclasses.dataclass(frozen=True)
class TextConstraint:
    """A constraint for a `Translator`, which may depend on the source texts.

    Attributes:
        constraint: The `Constraint` on hypotheses.
        start: `start(texts, max_lengths, beam_size)` returns the constraint's states for a batch, a pytree
            of tensors (B, W, ...). A row that is not searched has the text `""` and the maximum length 0.

    Raises:
        ValueError: If the attributes are not a constraint and a function.

    Example: a translation of "a house" that begins with given tokens.

    >>> constraint, prefixes = ForcedPrefix(vocabulary_size=280), {"a house": [260, 261]}
    >>> text_constraint = TextConstraint(constraint, lambda texts, max_lengths, beam_size:
    ...     constraint.start([prefixes.get(text, []) for text in texts], max_lengths, beam_size))
    >>> text_constraint.start(["a house", ""], [9, 0], 4)["prefix"].shape[:2] == (2, 4)
    True
    """

    constraint: Annotated[Constraint, Has("a constraint", "allowed")]
    start: Callable[[Sequence[str], Sequence[int], int], Any]

    def __post_init__(self) -> None:
        check_fields(self)

    def of_batch(self, texts: Sequence[str], max_lengths: Sequence[int], beam_size: int) -> Any:
        """Return the states for a batch, which may have more rows than texts."""
        texts = [*texts, *[""] * (len(max_lengths) - len(texts))]
        try:
            state = self.start(texts, max_lengths, beam_size)
        except NoRoom as error:
            raise ValueError(
                f"The text {texts[error.row]!r} {error.problem}. Raise `max_extra_length` of the "
                "`Translator` (--max-extra-length)."
            ) from error
        return check_states(state, len(texts), beam_size, constraint=self.constraint)


class ForcedPrefix:
    """Each hypothesis begins with given tokens, and the model continues from there.

    Args:
        vocabulary_size: Number of tokens V.
        then: A `Constraint` on the tokens behind the given ones, which knows those, too. Defaults to none.

    >>> from keras_attention.decoding.plain_search import beam_search
    >>> step = lambda token_ids, index, cache: (ops.zeros((1, 1, 4)), cache)  # all tokens are equal
    >>> constraint = ForcedPrefix(4)
    >>> result = beam_search(step, {}, [3], 1, start_token_id=0, end_token_id=1,
    ...     constraint=constraint, constraint_state=constraint.start([[3, 2]], [3], beam_size=1))
    >>> ops.convert_to_numpy(result.sequences)[0, 0, :2].tolist()
    [3, 2]
    """

    parts: tuple[str, ...] = ("prefix",)

    @checked
    def __init__(
        self,
        vocabulary_size: VocabularySize,
        then: Annotated[Constraint, Has("a constraint", "allowed", "advance")] | None = None,
    ):
        self.vocabulary_size = vocabulary_size
        self.then = then
        if then is not None:
            self.parts = ("prefix", "then")

    def start(
        self,
        prefixes: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        beam_size: int,
        then: Any = None,
    ) -> Any:
        """Return the states for a batch.

        Args:
            prefixes: The token ids with which each sentence begins; may be empty.
            max_lengths: (B,) int, the longest hypothesis allowed for each sentence, EOS included.
            beam_size: Number of beams W.
            then: The states of the constraint `then`, if there is one.

        Raises:
            ValueError: If a token is not in the vocabulary, a prefix is too long, or `then` is missing, or
                is not the states of such a batch.
        """
        room = check_counts("max_lengths", max_lengths, len(check_rows("prefixes", prefixes)))
        for row, prefix in enumerate(prefixes):
            check_ids(f"prefixes[{row}]", prefix, self.vocabulary_size)
            if 0 < room[row] < len(prefix) + 1:
                need = f"a prefix of {counted(len(prefix), 'token')}"
                raise NoRoom(row, need, len(prefix) + 1, room[row])
        tokens = np.full((len(prefixes), max([1, *map(len, prefixes)])), -1, "int32")
        for row, prefix in enumerate(prefixes):
            tokens[row, : len(prefix)] = list(prefix)
        state = for_each_beam({"prefix": tokens}, beam_size)
        if (self.then is None) != (then is None):
            raise ValueError(
                "`then` must be the states of the constraint that `ForcedPrefix` was made with, and is left "
                f"out if there is none. Received: then={reprlib.repr(then)}, with {self.then!r}"
            )
        if then is None:
            return state
        return {**state, "then": check_states(then, len(tokens), beam_size, "`then`", self.then)}

    def allowed(self, state: Any, index: Any) -> Any:
        # After the longest prefix, no entry is selected: -1, as after any other prefix.
        token = token_at(state["prefix"], index)[..., None]
        vocabulary = ops.arange(self.vocabulary_size, dtype="int32")
        free = ops.less(token, 0)
        if self.then is not None:
            free = free & self.then.allowed(state["then"], index)
        return ops.equal(vocabulary, token) | free

    def rescore(self, logits: Any, state: Any, index: Any) -> Any:
        return logits if self.then is None else rescored(self.then, logits, state["then"], index)

    def goals(self, state: Any, logits: Any) -> Any:
        return None if self.then is None else goals_of(self.then, state["then"], logits)

    def reached(self, state: Any, token_ids: Any) -> Any:
        return 0 if self.then is None else reached_by(self.then, state["then"], token_ids)

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        if self.then is None:
            return state
        return {**state, "then": self.then.advance(state["then"], token_ids, index)}


class RequiredPhrases:
    """No hypothesis ends before it contains certain phrases (lexical constraints).

    A phrase may occur anywhere, and two phrases may share tokens. When the remaining positions are just
    enough for the missing phrases and the end, only these are allowed, the phrase with the fewest missing
    tokens first. The beams are shared out between hypotheses with no, one, two, ... tokens of phrases
    (dynamic beam allocation: Post and Vilar 2018, arXiv 1804.06609), so that those that have begun a phrase
    are kept. A greedy search has one beam, and gives phrases at the end of its room.

    With `joints`, a phrase counts only as whole words: no word goes on into it, or out of it.

    Args:
        vocabulary_size: Number of tokens V.
        end_token_id: The EOS token.
        joints: Which tokens are joined to one word, `Tokenizer.joints`. Defaults to none: every token is a
            word.
    """

    parts = ("tokens", "lengths", "borders", "matched", "room", "goes_on")

    @checked
    def __init__(
        self,
        vocabulary_size: VocabularySize,
        end_token_id: int,
        joints: Annotated[Joints, Has("the joints of a Tokenizer", *Joints._fields)] | None = None,
    ):
        self.vocabulary_size = vocabulary_size
        self.end_token_id = check_integer("end_token_id", end_token_id, 0, vocabulary_size - 1)
        if joints is not None and len(joints.goes_on) != vocabulary_size:
            raise ValueError(
                f"`joints` must be of {vocabulary_size} tokens. Received: {len(joints.goes_on)} tokens"
            )
        self.joints = joints or Joints(*np.zeros((2, vocabulary_size), "bool"))
        self._kinds = CONTINUES * self.joints.continues + GOES_ON * self.joints.goes_on
        self._kinds[end_token_id] = END
        self._kinds = self._kinds.astype("int32")

    def start(
        self, phrases: Sequence[Sequence[Sequence[int]]], max_lengths: Sequence[int], beam_size: int
    ) -> Any:
        """Return the states for a batch.

        Args:
            phrases: The phrases of each sentence, each a list of token ids.
            max_lengths: (B,) int, the longest hypothesis allowed for each sentence, EOS included.
            beam_size: Number of beams W.

        Raises:
            ValueError: If a phrase is empty or holds an invalid token, or the phrases are too long.
        """
        room = check_counts("max_lengths", max_lengths, len(check_rows("phrases", phrases)))
        for row, wanted in enumerate(phrases):
            for place, phrase in enumerate(check_rows(f"phrases[{row}]", wanted)):
                name = f"phrases[{row}][{place}]"
                check_ids(name, phrase, self.vocabulary_size, self.end_token_id)
        number = max([1, *map(len, phrases)])
        longest = max([1, *(len(phrase) for row in phrases for phrase in row)])
        tokens = np.full((len(phrases), number, longest), -1, "int32")
        lengths = np.zeros((len(phrases), number), "int32")
        for row, wanted in enumerate(phrases):
            for place, phrase in enumerate(wanted):
                if not len(phrase):
                    raise ValueError(f"A phrase needs tokens. Received: phrases[{row}]={wanted!r}")
                tokens[row, place, : len(phrase)] = phrase
                lengths[row, place] = len(phrase)
            total = int(lengths[row].sum())
            if 0 < room[row] < total + 1:
                need = f"phrases of {counted(total, 'token')}"
                raise NoRoom(row, need, total + 1, room[row])
        state = {
            "tokens": tokens,
            "lengths": lengths,
            "borders": _borders(tokens, lengths, self.joints),
            # Of no phrase there is one more than of its length: that the word of its last token has ended.
            "matched": np.where(lengths > 0, 0, 1).astype("int32"),
            "room": room,
            "goes_on": np.zeros_like(room, "bool"),
        }
        return for_each_beam(state, beam_size)

    def allowed(self, state: Any, index: Any) -> Any:
        """Allow the end only after all phrases, and only missing phrases once they need all the room."""
        lengths, matched = state["lengths"], state["matched"]
        missing = ops.less(matched, lengths)
        unmet = ops.any(missing, axis=-1)
        spare = state["room"] - index - 1 - ops.sum(ops.where(missing, lengths, 0), axis=-1)
        is_open, at_stake = self._at_stake(state)
        must_end = is_open & ops.less_equal(spare, at_stake)
        # The last free token must not be joined to a phrase, unless it is of one.
        is_inner = missing & self._continues(state["tokens"][..., 0])
        is_last = ops.equal(spare, 1) & ops.any(is_inner, axis=-1)
        tokens = ops.arange(self.vocabulary_size, dtype="int32")
        nexts = self._next_tokens(state)
        had = ops.sum(ops.minimum(matched, lengths), axis=-1)
        helps = ops.greater(self.reached(state, ops.maximum(nexts, 0)), had[..., None])
        helping = ops.where(helps & ops.greater_equal(nexts, 0), nexts, -1)
        is_helping = ops.any(ops.equal(tokens, helping[..., None]), axis=-2)
        joins = ops.logical_and(is_last[..., None], (self._kinds & GOES_ON) > 0)
        forbidden = ops.where(unmet, END, 0) + ops.where(must_end, CONTINUES, 0)
        free = ops.equal(ops.bitwise_and(forbidden[..., None], self._kinds), 0)
        free = free & (is_helping | ops.logical_not(joins))
        # Continue with the phrase that misses the fewest tokens.
        chosen = ops.argmin(ops.where(missing, lengths - matched, 1 << 30), axis=-1)
        breaks = is_open[..., None] & self._continues(nexts)
        nexts = ops.where(breaks, state["tokens"][..., 0], nexts)
        token = number_at(nexts, chosen)
        is_next = ops.equal(tokens, token[..., None])
        is_tight = unmet & ops.less_equal(spare, 0)
        return ops.where(is_tight[..., None], is_next, free)

    @staticmethod
    def _at_stake(state: Any) -> tuple[Any, Any]:
        """Return whether phrases have just come and would not have if their last word went on, and tokens."""
        has_come = ops.equal(state["matched"], state["lengths"])
        is_open = state["goes_on"] & ops.any(has_come, axis=-1)
        return is_open, ops.sum(ops.where(has_come, state["lengths"], 0), axis=-1)

    def goals(self, state: Any, logits: Any) -> Any:
        """Return the next token of each phrase, and of what has just come those that end its word."""
        is_open, _ = self._at_stake(state)
        nexts = self._next_tokens(state)
        is_other = (self._kinds & (CONTINUES | END)) > 0
        likeliest = ops.cast(ops.argmax(ops.where(is_other, EMPTY, logits), axis=-1), "int32")
        end = ops.where(ops.any(nexts >= 0, axis=-1), -1, self.end_token_id)
        ending = ops.where(is_open[..., None], ops.stack([likeliest, end], axis=-1), -1)
        return ops.concatenate([nexts, ending], axis=-1)

    def reached(self, state: Any, token_ids: Any) -> Any:
        matched = self._matched(state, token_ids)
        return ops.sum(ops.minimum(matched, state["lengths"][:, :, None]), axis=-1)

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        goes_on = ops.take(self.joints.goes_on, token_ids, axis=0)
        matched = self._matched(state, token_ids[..., None])[:, :, 0]
        return {**state, "matched": matched, "goes_on": goes_on}

    def _matched(self, state: Any, token_ids: Any) -> Any:
        """Return the matched tokens of each phrase (B, W, N, C) after one of N tokens (B, W, N).

        What has not gone on with a phrase may be further on with a part of it, as in Knuth, Morris and Pratt.
        """
        tokens, lengths, matched = state["tokens"], state["lengths"], state["matched"]
        is_joined = (state["goes_on"][:, :, None] & self._continues(token_ids))[..., None]
        sizes = ops.arange(1, tokens.shape[-1] + 1, dtype="int32")
        here = ops.equal(ops.arange(tokens.shape[-1] + 1, dtype="int32"), matched[..., None])
        begun = ops.any(here[..., None] & state["borders"], axis=-2)[:, :, None]
        begun = begun & ops.logical_not(is_joined[..., None] & ops.equal(sizes, 1))
        is_next = begun & ops.equal(tokens[:, :, None], token_ids[..., None, None])
        found = ops.max(ops.where(is_next, sizes, 0), axis=-1)
        ended = ops.cast(ops.logical_not(is_joined), "int32")
        is_done = ops.greater(matched[:, :, None] + ended, lengths[:, :, None])
        return ops.where(is_done, lengths[:, :, None] + 1, found)

    def _continues(self, token_ids: Any) -> Any:
        return ops.take(self.joints.continues, ops.maximum(token_ids, 0), axis=0)

    @staticmethod
    def _next_tokens(state: Any) -> Any:
        """Return (B, W, C), the next token of each phrase; -1 if it is complete."""
        is_complete = ops.greater_equal(state["matched"], state["lengths"])
        place = ops.minimum(state["matched"], state["tokens"].shape[-1] - 1)
        return ops.where(is_complete, -1, number_at(state["tokens"], place))


@checked
def for_each_beam(state: Any, beam_size: BeamSize) -> Any:
    """Repeat arrays (B, ...) for each beam: return tensors (B, W, ...)."""
    return keras.tree.map_structure(
        lambda leaf: ops.repeat(ops.convert_to_tensor(leaf)[:, None], beam_size, axis=1), state
    )


def one_at(values: Any, places: Any) -> Any:
    """Return (..., P): True at `places` (...) of the last axis of `values` (..., P)."""
    return ops.equal(ops.arange(values.shape[-1], dtype="int32"), places[..., None])


def number_at(values: Any, places: Any) -> Any:
    """Return the numbers at `places` (...) along the last axis of `values` (..., P)."""
    return ops.sum(ops.where(one_at(values, places), values, 0), axis=-1)


def token_at(tokens: Any, index: Any) -> Any:
    """Return the tokens (...) at a position of the last axis of `tokens` (..., L); -1 outside of it."""
    here = ops.equal(ops.arange(tokens.shape[-1], dtype="int32"), index)
    return ops.sum(ops.where(here, tokens + 1, 0), axis=-1) - 1


def _borders(tokens: np.ndarray, lengths: np.ndarray, joints: Joints) -> np.ndarray:
    """Return (B, C, P + 1, P) bool: whether the first m tokens of a phrase end with its first n, as words.

    All of a phrase is no beginning of another.
    """
    longest = tokens.shape[-1]
    table = np.zeros((*lengths.shape, longest + 1, longest), bool)
    for row, place in np.ndindex(*lengths.shape):
        phrase = tokens[row, place, : lengths[row, place]].tolist()
        for m in range(len(phrase) + 1):
            for n in range(min(m + 1, len(phrase))):
                joined = 0 < n < m and joints.join(phrase[m - n - 1], phrase[0])
                table[row, place, m, n] = phrase[:n] == phrase[m - n : m] and not joined
    return table


def check_ids(name: str, ids: Any, vocabulary_size: int, never: int = -1) -> None:
    """Raise a ValueError unless `ids` is a list of token ids, and none is `never`."""
    for place, token in enumerate(check_rows(name, ids)):
        check_integer(f"{name}[{place}]", token, 0, vocabulary_size - 1)
        if token == never:
            raise ValueError(f"`{name}` must not hold the end token {never}. Received: {ids!r}")


def check_rows(name: str, rows: Any, number: int | None = None) -> Any:
    """Return `rows`; raise a ValueError unless it is a list or an array, of so many entries."""
    is_list = isinstance(rows, list | tuple) or (isinstance(rows, np.ndarray) and rows.ndim > 0)
    if not is_list or (number is not None and len(rows) != number):
        of = "" if number is None else f" with an entry for each of {number} sentences"
        raise ValueError(f"`{name}` must be a list{of}. Received: {name}={shown(rows)}")
    return rows


def check_counts(name: str, counts: Any, number: int | None = None) -> np.ndarray:
    """Return a list of integers of at least 0 as an array; raise a ValueError if it is none."""
    rows = enumerate(check_rows(name, counts, number))
    most = np.iinfo("int32").max
    return np.array(
        [check_integer(f"{name}[{row}]", count, 0, most) for row, count in rows], "int32"
    )
