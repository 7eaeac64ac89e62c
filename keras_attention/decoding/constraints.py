"""Constraints for the beam search: forced prefixes, required phrases and well-formed trees.

A constraint is created once for a vocabulary; its `start` returns the `constraint_state` of a batch. All
constraints run in a compiled search on every backend. Log-probabilities remain those of the model.

Shape letters: B sentences, W beams, V vocabulary, P tokens of a prefix or phrase, C phrases.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.decoding.plain_search import Constraint
from keras_attention.utils.checks import check_callable, check_has, check_integer, check_iterable

WIDTH_STEP = 64


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
    ...     constraint.start([prefixes.get(text, []) for text in texts], beam_size))
    >>> text_constraint.start(["a house", ""], [9, 0], 4)["prefix"].shape[:2] == (2, 4)
    True
    """

    constraint: Constraint
    start: Callable[[Sequence[str], Sequence[int], int], Any]

    def __post_init__(self) -> None:
        check_has("constraint", self.constraint, "a constraint", "allowed")
        check_callable("start", self.start)


class ForcedPrefix:
    """Each hypothesis begins with given tokens, and the model continues from there.

    Args:
        vocabulary_size: Number of tokens V.

    >>> from keras_attention.decoding.plain_search import beam_search
    >>> step = lambda token_ids, index, cache: (ops.zeros((1, 1, 4)), cache)  # all tokens are equal
    >>> constraint = ForcedPrefix(4)
    >>> result = beam_search(step, {}, [3], 1, start_token_id=0, end_token_id=1,
    ...     constraint=constraint, constraint_state=constraint.start([[3, 2]], beam_size=1))
    >>> ops.convert_to_numpy(result.sequences)[0, 0, :2].tolist()
    [3, 2]
    """

    def __init__(self, vocabulary_size: int):
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size, 1)

    def start(self, prefixes: Sequence[Sequence[int]], beam_size: int) -> Any:
        """Return the states for a batch.

        Args:
            prefixes: The token ids with which each sentence begins; may be empty.
            beam_size: Number of beams W.

        Raises:
            ValueError: If a token is not in the vocabulary.
        """
        tokens = np.full((len(prefixes), max(1, *map(len, prefixes))), -1, "int32")
        for row, prefix in enumerate(prefixes):
            _check_ids("prefixes", prefix, self.vocabulary_size)
            tokens[row, : len(prefix)] = prefix
        return _for_each_beam({"prefix": tokens}, beam_size)

    def allowed(self, state: Any, index: Any) -> Any:
        """Allow the next token of the prefix, or all tokens after its end; see `Constraint`."""
        prefix = state["prefix"]
        here = ops.equal(ops.arange(prefix.shape[-1], dtype="int32"), index)
        # After the longest prefix, no entry is selected: -1, as after any other prefix.
        token = ops.sum(ops.where(here, prefix + 1, 0), axis=-1, keepdims=True) - 1
        vocabulary = ops.arange(self.vocabulary_size, dtype="int32")
        return ops.equal(vocabulary, token) | ops.less(token, 0)

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        """Return the same state: a prefix does not depend on the chosen tokens."""
        return state


class RequiredPhrases:
    """No hypothesis ends before it contains certain phrases (lexical constraints).

    A phrase may occur anywhere, and two phrases may share tokens. When the remaining positions are just
    enough for the missing phrases and the end, only these are allowed, the phrase with the fewest missing
    tokens first. As without a constraint, the search keeps the most probable hypotheses, whether they
    contain a phrase yet or not. So a narrow beam finds worse translations than a wide one.

    Args:
        vocabulary_size: Number of tokens V.
        end_token_id: The EOS token.
    """

    def __init__(self, vocabulary_size: int, end_token_id: int):
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size, 1)
        self.end_token_id = check_integer("end_token_id", end_token_id, 0, vocabulary_size - 1)

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
        number = max(1, *map(len, phrases))
        longest = max([1, *(len(phrase) for row in phrases for phrase in row)])
        tokens = np.full((len(phrases), number, longest), -1, "int32")
        lengths = np.zeros((len(phrases), number), "int32")
        for row, wanted in enumerate(phrases):
            for place, phrase in enumerate(wanted):
                _check_ids("phrases", phrase, self.vocabulary_size, self.end_token_id)
                if not len(phrase):
                    raise ValueError(f"A phrase needs tokens. Received: phrases[{row}]={wanted!r}")
                tokens[row, place, : len(phrase)] = phrase
                lengths[row, place] = len(phrase)
            if lengths[row].sum() + 1 > max_lengths[row]:
                raise ValueError(
                    f"The phrases of sentence {row} have {lengths[row].sum()} tokens, and with the end "
                    f"token do not fit. Received: max_lengths[{row}]={max_lengths[row]}"
                )
        state = {
            "tokens": tokens,
            "lengths": lengths,
            "back": _failure(tokens, lengths),
            "matched": np.zeros_like(lengths),
            "room": np.array(max_lengths, "int32"),
        }
        return _for_each_beam(state, beam_size)

    def allowed(self, state: Any, index: Any) -> Any:
        """Allow the end only after all phrases, and only missing phrases once they need all the room."""
        lengths, matched = state["lengths"], state["matched"]
        missing = ops.less(matched, lengths)
        # Continue with the phrase that misses the fewest tokens.
        left = lengths - matched
        chosen = ops.argmin(ops.where(missing, left, 1 << 30), axis=-1)
        is_chosen = missing & ops.equal(ops.arange(lengths.shape[-1]), chosen[..., None])
        need = ops.sum(ops.where(missing, lengths, 0), axis=-1) + 1
        token = ops.sum(ops.where(is_chosen, self._next_tokens(state), 0), axis=-1)
        is_next = ops.equal(ops.arange(self.vocabulary_size, dtype="int32"), token[..., None])
        unmet = ops.any(missing, axis=-1)
        is_tight = unmet & ops.less_equal(state["room"] - index, need)
        is_end = ops.equal(ops.arange(self.vocabulary_size), self.end_token_id)
        free = ops.logical_not(unmet[..., None] & is_end)
        return ops.where(is_tight[..., None], is_next, free)

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        """Update how many tokens of each phrase have been matched, as Knuth, Morris and Pratt do."""
        tokens, lengths, matched = state["tokens"], state["lengths"], state["matched"]
        is_done = ops.equal(matched, lengths)
        token = token_ids[..., None]
        for _ in range(tokens.shape[-1]):
            is_next = ops.equal(self._next_tokens({**state, "matched": matched}), token)
            back = _at(state["back"], ops.maximum(matched - 1, 0))
            matched = ops.where(is_next | ops.equal(matched, 0), matched, back)
        is_next = ops.equal(self._next_tokens({**state, "matched": matched}), token)
        matched = matched + ops.cast(is_next, "int32")
        return {**state, "matched": ops.where(is_done, lengths, matched)}

    @staticmethod
    def _next_tokens(state: Any) -> Any:
        """Return (B, W, C), the next token of each phrase; -1 if it is complete."""
        is_complete = ops.equal(state["matched"], state["lengths"])
        place = ops.minimum(state["matched"], state["tokens"].shape[-1] - 1)
        return ops.where(is_complete, -1, _at(state["tokens"], place))


class WellFormedTrees:
    """Hypotheses are trees, as `data.trees.linearize` writes them, over the words of the sentence.

    A stack automaton decides. A phrase is opened, or a leaf written, only while there are words left. Only
    the innermost phrase is closed, and only if it has a child. The root is closed when no word is left, and
    then the hypothesis ends. Nothing is opened without room to close it, so each hypothesis is complete.
    A leaf is any tag; or it is the next word, of which every token must be written before anything else.

    Args:
        vocabulary_size: Number of tokens V.
        phrases: Ids of the symbols that open and close each phrase: `{"NP": (17, 18)}`.
        tags: Ids of the tags; none if the leaves are words.
        end_token_id: The EOS token.
        max_depth: Largest number of nested phrases. Defaults to 64.

    Raises:
        ValueError: If there is no phrase, or an id is outside the vocabulary or used twice.
    """

    def __init__(
        self,
        vocabulary_size: int,
        phrases: Mapping[str, tuple[int, int]],
        tags: Sequence[int],
        end_token_id: int,
        max_depth: int = 64,
    ):
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size, 1)
        check_integer("end_token_id", end_token_id, 0, vocabulary_size - 1)
        check_has("phrases", phrases, "a dict of the ids that open and close each", "values")
        for token_id in check_iterable("tags", tags):
            check_integer("tags", token_id, 0, vocabulary_size - 1)
        for pair in phrases.values():
            for token_id in check_iterable("phrases", pair):
                check_integer("phrases", token_id, 0, vocabulary_size - 1)
        opens = [pair[0] for pair in phrases.values()]
        closes = [pair[1] for pair in phrases.values()]
        ids = [*opens, *closes, *tags, end_token_id]
        if not opens:
            raise ValueError(f"Trees need phrases. Received: phrases={phrases!r}")
        if len(set(ids)) < len(ids):
            raise ValueError(
                "Phrases, tags and the end token need ids of their own: one occurs twice."
            )
        self.max_depth = check_integer("max_depth", max_depth, 1)
        self._symbols = {*opens, *closes, end_token_id}
        self._has_tags = bool(len(tags))
        # The number of the phrase that a symbol opens or closes; -1 for other symbols.
        phrase = np.full(vocabulary_size, -1, "int32")
        phrase[opens] = phrase[closes] = np.arange(len(opens))
        kinds = (opens, closes, tags, end_token_id)
        # Each (V,): whether a symbol opens, closes, is a tag or ends; and the number of its phrase.
        self._tables = (*(np.isin(np.arange(vocabulary_size), kind) for kind in kinds), phrase)

    def start(
        self,
        words: Sequence[int | Sequence[Sequence[int]]],
        max_lengths: Sequence[int],
        beam_size: int,
    ) -> Any:
        """Return the states for a batch.

        Args:
            words: With tags, the number of words of each sentence; without tags, its words, each a list of
                token ids. 0 or empty for rows that are not searched.
            max_lengths: (B,) int, the longest hypothesis allowed for each sentence, EOS included.
            beam_size: Number of beams W.

        Raises:
            ValueError: If there is no room for the smallest tree, a root over all words, and the end. Or if
                a word has no tokens, or one that is a phrase's symbol or the end.
        """
        table: dict[str, np.ndarray] = {}
        if self._has_tags:
            number = np.array(words, "int32")
        else:
            number, table = self._table_of_words(words, max(max_lengths, default=1))
        room = np.array(max_lengths, "int32")
        short = np.flatnonzero((number > 0) & (room < number + 3))
        if len(short):
            row = short[0]
            raise ValueError(
                f"A tree with {number[row]} leaves needs {number[row] + 3} symbols at least, the end "
                f"included. Received: max_lengths[{row}]={room[row]}"
            )
        state = {
            "stack": np.full((len(number), self.max_depth), -1, "int32"),
            "depth": np.zeros_like(number),
            "left": number,
            "has_child": np.zeros(len(number), bool),
            "room": room,
            **table,
        }
        return _for_each_beam(state, beam_size)

    def _table_of_words(self, words: Any, width: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """How many tokens each sentence has; and the tokens, and which of them go on with a word."""
        number = np.zeros(len(words), "int32")
        # In steps, so that a compiled search meets few shapes.
        tokens = np.full((len(words), math.ceil(width / WIDTH_STEP) * WIDTH_STEP), -1, "int32")
        goes_on = np.zeros(tokens.shape, bool)
        for row, sentence in enumerate(words):
            for word in check_iterable("words", sentence):
                _check_ids("words", word, self.vocabulary_size)
                if not len(word) or self._symbols.intersection(word):
                    raise ValueError(
                        "A word needs tokens, none of which opens or closes a phrase or ends the tree. "
                        f"Received: {list(word)} in words[{row}]"
                    )
                place, number[row] = number[row], number[row] + len(word)
                if number[row] <= width:
                    tokens[row, place : number[row]] = word
                    goes_on[row, place + 1 : number[row]] = True
        return number, {"tokens": tokens, "goes_on": goes_on, "place": np.zeros_like(number)}

    def allowed(self, state: Any, index: Any) -> Any:
        """Allow the symbols after which the tree can still be completed; see `Constraint`."""
        depth, left = state["depth"], state["left"]
        is_open, has_words = ops.greater(depth, 0), ops.greater(left, 0)
        opens, closes, leaf, ends, phrase = map(ops.convert_to_tensor, self._tables)
        is_between = True
        if not self._has_tags:
            leaf = ops.equal(
                ops.arange(self.vocabulary_size, dtype="int32"), _next_token(state)[..., None]
            )
            here = _one_at(state["goes_on"], state["place"])
            is_between = ops.logical_not(ops.any(here & state["goes_on"], axis=-1))
        # After an opening symbol: every leaf, a close for each open phrase, the end.
        has_room = ops.greater_equal(state["room"] - index - 1, left + depth + 2)
        can_open = (is_open | ops.equal(index, 0)) & has_words & has_room & is_between
        can_open = can_open & ops.less(depth, self.max_depth)
        is_root = ops.equal(depth, 1)
        can_close = is_open & state["has_child"] & ops.logical_not(is_root & has_words) & is_between
        can_end = ops.logical_not(is_open | has_words)
        top = _at(state["stack"], ops.maximum(depth - 1, 0))
        return (
            (can_open[..., None] & opens)
            | ((is_open & has_words)[..., None] & leaf)
            | (can_close[..., None] & closes & ops.equal(phrase, top[..., None]))
            | (can_end[..., None] & ends)
        )

    def advance(self, state: Any, token_ids: Any, index: Any) -> Any:
        """Push opened phrases, pop closed ones, and count leaves."""
        opens, closes, is_leaf, _, phrase = (
            ops.take(ops.convert_to_tensor(table), token_ids, axis=0) for table in self._tables
        )
        depth, stack = state["depth"], state["stack"]
        here = ops.equal(ops.arange(self.max_depth, dtype="int32"), depth[..., None])
        if not self._has_tags:
            is_leaf = ops.equal(token_ids, _next_token(state)) & ops.greater(state["left"], 0)
            state = {**state, "place": state["place"] + ops.cast(is_leaf, "int32")}
        return {
            **state,
            "stack": ops.where(opens[..., None] & here, phrase[..., None], stack),
            "depth": depth + ops.cast(opens, "int32") - ops.cast(closes, "int32"),
            "left": state["left"] - ops.cast(is_leaf, "int32"),
            "has_child": (state["has_child"] | is_leaf | closes) & ops.logical_not(opens),
        }


def _for_each_beam(state: Any, beam_size: int) -> Any:
    """Repeat arrays (B, ...) for each beam: return tensors (B, W, ...)."""
    return keras.tree.map_structure(
        lambda leaf: ops.repeat(ops.convert_to_tensor(leaf)[:, None], beam_size, axis=1), state
    )


def _next_token(state: Any) -> Any:
    """Return (B, W), the next token of the sentence's words."""
    return _at(state["tokens"], state["place"])


def _one_at(values: Any, places: Any) -> Any:
    """Return (..., P): True at `places` (...) of the last axis of `values` (..., P)."""
    return ops.equal(ops.arange(values.shape[-1], dtype="int32"), places[..., None])


def _at(values: Any, places: Any) -> Any:
    """Return the numbers at `places` (...) along the last axis of `values` (..., P)."""
    return ops.sum(ops.where(_one_at(values, places), values, 0), axis=-1)


def _failure(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return, for each prefix of a phrase, the length of the longest shorter prefix that is its suffix."""
    table = np.zeros_like(tokens)
    for row, place in np.ndindex(*lengths.shape):
        phrase = tokens[row, place, : lengths[row, place]].tolist()
        for end in range(1, len(phrase)):
            table[row, place, end] = next(
                size
                for size in range(end, -1, -1)
                if phrase[:size] == phrase[end + 1 - size : end + 1]
            )
    return table


def _check_ids(name: str, ids: Sequence[int], vocabulary_size: int, never: int = -1) -> None:
    wrong = [i for i in ids if not 0 <= i < vocabulary_size or i == never]
    if wrong:
        raise ValueError(
            f"`{name}` must hold token ids from 0 to {vocabulary_size - 1}"
            f"{f', but not the end token {never}' if never >= 0 else ''}. Received: {wrong}"
        )
