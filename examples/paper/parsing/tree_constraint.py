"""A constraint for the beam search: well-formed trees.

Shape letters: B sentences, W beams, V vocabulary, P tokens of a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_attention.decoding.constraints import (
    NoRoom,
    check_counts,
    check_ids,
    check_rows,
    for_each_beam,
    number_at,
    one_at,
)
from keras_attention.decoding.hypotheses import EMPTY
from keras_attention.utils.checks import check_has, check_integer, check_iterable, counted
from parsing.trees import DEEPEST_PHRASES

WIDTH_STEP = 64


class WellFormedTrees:
    """Hypotheses are trees, as `parsing.trees.linearize` writes them, over the words of the sentence.

    A stack automaton decides. A phrase is opened, or a leaf written, only while there are words left. Only
    the innermost phrase is closed, and only if it has a child. The root is closed when no word is left, and
    then the hypothesis ends. Nothing is opened without room to close it, so each hypothesis is complete.
    A leaf is any tag; or it is the next word, of which every token must be written before anything else.

    Which word comes next is then known, and the model only chooses between a word and a symbol. So the word
    gets the probability of all tokens that are no symbols: a model that would copy another word still says
    that a word comes now. With its own small probability, trees that put it off would win.

    Args:
        vocabulary_size: Number of tokens V.
        phrases: Ids of the symbols that open and close each phrase: `{"NP": (17, 18)}`.
        tags: Ids of the tags; none if the leaves are words.
        end_token_id: The EOS token.
        max_depth: Largest number of nested phrases, at most 198, which `delinearize` reads. Defaults to 64.

    Raises:
        ValueError: If there is no phrase, or an id is outside the vocabulary or used twice.
    """

    parts = ("stack", "depth", "left", "has_child", "room")

    def __init__(
        self,
        vocabulary_size: int,
        phrases: Mapping[str, tuple[int, int]],
        tags: Sequence[int],
        end_token_id: int,
        max_depth: int = 64,
    ):
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size, 1, 10**7)
        check_integer("end_token_id", end_token_id, 0, vocabulary_size - 1)
        check_has("phrases", phrases, "a dict of the ids that open and close each", "items")
        for token_id in check_iterable("tags", tags):
            check_integer("tags", token_id, 0, vocabulary_size - 1)
        for name, pair in phrases.items():
            if len(check_rows(f"phrases[{name!r}]", pair)) != 2:
                raise ValueError(
                    "`phrases` must give each phrase two ids, of the symbols that open and close it. "
                    f"Received: phrases[{name!r}]={pair!r}"
                )
            for token_id in pair:
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
        self.max_depth = check_integer("max_depth", max_depth, 1, DEEPEST_PHRASES)
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
        room = check_counts("max_lengths", max_lengths, len(check_rows("words", words)))
        if self._has_tags:
            number = check_counts("words", words)
        else:
            number, table = self._table_of_words(words, max(room.tolist(), default=1))
        short = np.flatnonzero((number > 0) & (room > 0) & (room < number + 3))
        if len(short):
            row = short[0]
            need = f"a tree with {counted(int(number[row]), 'leaf token')} and a root"
            raise NoRoom(row, need, number[row] + 3, room[row])
        state = {
            "stack": np.full((len(number), self.max_depth), -1, "int32"),
            "depth": np.zeros_like(number),
            "left": number,
            "has_child": np.zeros(len(number), bool),
            "room": room,
            **table,
        }
        return for_each_beam(state, beam_size)

    def _table_of_words(self, words: Any, width: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """How many tokens each sentence has; and the tokens, and which of them go on with a word."""
        number = np.zeros(len(words), "int32")
        # In steps, so that a compiled search meets few shapes.
        tokens = np.full((len(words), math.ceil(width / WIDTH_STEP) * WIDTH_STEP), -1, "int32")
        goes_on = np.zeros(tokens.shape, bool)
        for row, sentence in enumerate(words):
            for word in check_iterable("words", sentence):
                check_ids("words", word, self.vocabulary_size)
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
            leaf = self._is_next(state)
            here = one_at(state["goes_on"], state["place"])
            is_between = ops.logical_not(ops.any(here & state["goes_on"], axis=-1))
        # After an opening symbol: every leaf, a close for each open phrase, the end.
        has_room = ops.greater_equal(state["room"] - index - 1, left + depth + 2)
        can_open = (is_open | ops.equal(index, 0)) & has_words & has_room & is_between
        can_open = can_open & ops.less(depth, self.max_depth)
        is_root = ops.equal(depth, 1)
        can_close = is_open & state["has_child"] & ops.logical_not(is_root & has_words) & is_between
        can_end = ops.logical_not(is_open | has_words)
        top = number_at(state["stack"], ops.maximum(depth - 1, 0))
        return (
            (can_open[..., None] & opens)
            | ((is_open & has_words)[..., None] & leaf)
            | (can_close[..., None] & closes & ops.equal(phrase, top[..., None]))
            | (can_end[..., None] & ends)
        )

    def rescore(self, logits: Any, state: Any, index: Any) -> Any:
        """Give the next word the probability of all words; see `Constraint`."""
        if self._has_tags:
            return logits
        opens, closes, _, ends, _ = map(ops.convert_to_tensor, self._tables)
        is_symbol = opens | closes | ends
        logits = ops.cast(logits, "float32")
        words = ops.logsumexp(ops.where(is_symbol, EMPTY, logits), axis=-1, keepdims=True)
        words = ops.where(self._is_next(state), words, EMPTY)
        is_over = ops.less_equal(state["left"], 0)[..., None]
        return ops.where(is_symbol | is_over, logits, words)

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

    def _is_next(self, state: Any) -> Any:
        """Return (B, W, V): which token is the next one of the sentence's words."""
        tokens = ops.arange(self.vocabulary_size, dtype="int32")
        return ops.equal(tokens, _next_token(state)[..., None])


def _next_token(state: Any) -> Any:
    """Return (B, W), the next token of the sentence's words."""
    return number_at(state["tokens"], state["place"])
