"""What translations must not contain, and how long they may be, for every text that a `Translator` gets.

This module does not import Keras: `token_rules.py` has the rules in `keras.ops`, `engine/numba/choice.py` for
Numba's engine.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_attention.data.normalization import normalize
from keras_attention.decoding.requests import WrongText
from keras_attention.decoding.translation import Translation
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.engine.base import TokenRules
from keras_attention.utils.arguments import Count, FromZero, LeastLength, check_fields
from keras_attention.utils.checks import check_integer, has_surrogate
from keras_attention.utils.sides import encode_side, start_of, unknown_of

# Behind them a word is spelled as behind any mark that is no space.
BEFORE_A_WORD = ("", "(", "-")
# A loop is a stretch of at most so many characters that stands in a row: whole words three times, else four.
LONGEST_LOOP = 60
LOOPS = (re.compile(r"( [^ ].{0,58}?)\1{2,}(?!\w)"), re.compile(r"(.{1,60}?)\1{3,}"))
# What is tried in turn to get out of a loop: no sequence of so many tokens twice.
LOOP_BLOCKS = (4, 2, 1)


@dataclasses.dataclass(frozen=True)
class Restrictions:
    """What no translation of a `Translator` may contain, and how long it may be.

    Lengths are in tokens, without the end token, as in `Translation.token_ids`.

    A word is banned as the tokenizer spells it, at the beginning of a word or within one, as given, in
    lower case, in upper case and with a capital. Words that begin with the same tokens are banned with it; a
    model may still spell the word with other tokens.

    Attributes:
        no_repeat_ngram_size: No sequence of this many tokens occurs twice in a translation; 0 for no such
            rule. Defaults to 0.
        banned: Words and phrases that do not occur. Defaults to none.
        min_length: Least length. Defaults to 0.
        max_length: Greatest length, at which each translation ends. Defaults to no limit but the translator's
            own, which cuts off.

    Raises:
        ValueError: If a value is out of range.

    Example:

    >>> Restrictions(no_repeat_ngram_size=3, banned=["colour"]).min_length
    0
    """

    no_repeat_ngram_size: FromZero = 0
    banned: Sequence[str] = ()
    min_length: LeastLength = 0
    max_length: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for word in self.banned:
            if not normalize(word) or has_surrogate(word):
                raise ValueError(f"`banned` must hold words. Received: banned={self.banned!r}")
        if self.max_length is not None:
            check_integer("max_length", self.max_length, self.min_length)

    def token_rules(self, tokenizer: Any) -> TokenRules | None:
        """Return the rules for the tokens of a tokenizer; None if there are none."""
        found = sorted({ids for word in self.banned for ids in _spellings(tokenizer, word)})
        banned = None
        if found:
            banned = np.full((len(found), max(map(len, found))), -1, "int32")
            for row, ids in enumerate(found):
                banned[row, : len(ids)] = ids
        numbers = self.no_repeat_ngram_size, self.min_length, self.max_length or 0
        return TokenRules(*numbers, banned) if any(numbers) or banned is not None else None


def break_loops(
    translators: Sequence[Any],
    results: list[list[Translation]],
    texts: Sequence[str],
    beside: Mapping[str, Sequence[Any] | None],
    **how: Any,
) -> None:
    """Put translations of ever stricter translators in place of those with a loop, and mark them.

    `results` are changed. `beside` has arguments of `Translator.translate` with an entry for each text, or
    None, and `how` its others.
    """
    for row in [row for row, best in enumerate(results) if has_loop(best[0].text, texts[row])]:
        asked = {name: given and [given[row]] for name, given in beside.items()}
        for translator in translators:
            try:
                [found] = translator.translate([texts[row]], unusual=UnusualTexts(), **asked, **how)
            except WrongText:  # Nothing keeps the stricter rule.
                break
            results[row] = found
            if not has_loop(found[0].text, texts[row]):
                break
        results[row] = [dataclasses.replace(one, had_loop=True) for one in results[row]]


def stricter(translator: Any) -> list[Any]:
    """Return like translators with ever stricter rules against repetitions."""
    rules = translator.restrictions or Restrictions()
    own = rules.no_repeat_ngram_size or LOOP_BLOCKS[0] + 1
    return [
        dataclasses.replace(
            translator,
            break_loops=False,
            split_sentences=None,
            show_progress=False,
            restrictions=dataclasses.replace(rules, no_repeat_ngram_size=size),
        )
        for size in LOOP_BLOCKS
        if size < own
    ]


def has_loop(translation: str, source: str) -> bool:
    """Whether a translation says something again and again that its source does not.

    A loop is a stretch with a letter in it, of at most 60 characters, that stands three times in a row if it
    is of whole words, or four times within words or without spaces; and more often than any stretch stands
    in a row in the source, of a source with three or more more than twice as often. Case and the width of
    spaces do not count.

    >>> has_loop("Salat Salat Salat", "salad"), has_loop("nein, nein, nein, nein", "no no no no")
    (True, False)
    """
    text, source = (f" {' '.join(each.split()).casefold()}" for each in (translation, source))
    found = [
        len(match[0]) // len(match[1])
        for pattern in LOOPS
        for match in pattern.finditer(text)
        if any(map(str.isalpha, match[1]))
    ]
    if not found:
        return False
    most = _most_in_a_row(source)
    return max(found) > (most if most < 3 else 2 * most)


def _most_in_a_row(text: str) -> int:
    """Return how often a stretch of a text stands in a row at most."""
    most = 1
    for period in range(1, min(LONGEST_LOOP, len(text) // 2) + 1):
        same = run = 0
        for one, other in zip(text, text[period:], strict=False):
            run = run + 1 if one == other else 0
            same = max(same, run)
        most = max(most, same // period + 1)
    return most


def check_restrictions(name: str, restrictions: Any) -> Restrictions:
    """Return them, made of a dict of their attributes; raise a ValueError if they are anything else."""
    if isinstance(restrictions, dict) and restrictions.keys() <= set(Restrictions.__annotations__):
        return Restrictions(**restrictions)
    if not isinstance(restrictions, Restrictions):
        raise ValueError(
            f"`{name}` must be `Restrictions`, such as Restrictions(no_repeat_ngram_size=3), or None. "
            f"Received: {name}={restrictions!r}"
        )
    return restrictions


def _spellings(tokenizer: Any, word: str) -> list[tuple[int, ...]]:
    """Return the token sequences of a word at the beginning of a word and within one, in four cases.

    One with a character that the vocabulary lacks is left out: the model cannot write it.
    """
    word = normalize(word)  # Its first letter is what is seen first.
    cases = dict.fromkeys((word, word.lower(), word.upper(), word[:1].upper() + word[1:]))
    found = []
    code = len(start_of(tokenizer))
    for before in BEFORE_A_WORD:
        texts = [before, *(before + case for case in cases)]
        [start, *spelled] = (ids[code:] for ids in encode_side(tokenizer, texts, "target"))
        # Where a mark and a letter are one token, the mark tells nothing.
        found += [
            tuple(ids[len(start) :]) for ids in spelled if list(ids[: len(start)]) == list(start)
        ]
    unknown = unknown_of(tokenizer, "target")
    return [ids for ids in found if ids and unknown not in ids]
