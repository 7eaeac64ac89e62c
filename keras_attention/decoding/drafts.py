"""`LexicalDraft`: proposes the next tokens of a translation from n-grams and a lexicon."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from keras_attention.decoding.draft_files import SavedDraft, read_draft
from keras_attention.decoding.draft_heads import DraftHeads
from keras_attention.decoding.lexicon import Lexicon, train_lexicon, translations
from keras_attention.decoding.ngrams import Level, continuations, count_ngrams
from keras_attention.decoding.pairs_of_text import encoded_pairs
from keras_attention.engine.base import CHILDREN, FOLLOWERS, KINDS, TOTAL, DraftTables
from keras_attention.utils.checks import (
    check_has,
    check_integer,
    check_iterable,
    check_numbers,
)
from keras_attention.utils.sides import target_size_of

FORMAT = 1
# How much of a token's probability, given the source, is its share of all text.
PRIOR_SHARE = 0.1
# What follows so many contexts is remembered.
MOST_CONTEXTS = 1 << 14


class LexicalDraft(SavedDraft):
    """Proposes the tokens that followed the last ones in a text, weighted by what the source suggests.

    A token y is as good as `p(y | last tokens) p(y | source) / p(y)`: the first factor comes from n-grams
    with back-off (Witten and Bell 1991), the second from the lexicon of model 1 of Brown et al. (1993).
    Make one with `train`, from the model's own translations of the text that it learned from, and give it
    to a `Translator`. In float32 it changes no translation, only the number of passes that the decoder
    makes.

    Args:
        ngrams: A level for each length of a context.
        lexicon: Translations of source tokens.
        frequencies: float32 (V,), the share of each target token in the text.
        start_token_id: With which each context begins.

    Example:

    >>> from keras_attention import Tokenizer
    >>> pairs = [("a small house", "ein kleines Haus"), ("a house", "ein Haus")]
    >>> tokenizer = Tokenizer.train([text for pair in pairs for text in pair], vocabulary_size=290)
    >>> draft = LexicalDraft.train(tokenizer, pairs)
    >>> source, target = (tokenizer.encode([text])[0] for text in pairs[0])
    >>> draft.propose([*source, tokenizer.end_token_id], target[:1], 2) == target[1:3]
    True
    """

    def __init__(
        self,
        ngrams: Sequence[Level],
        lexicon: Lexicon,
        frequencies: np.ndarray,
        start_token_id: int,
    ):
        for level in check_iterable("ngrams", ngrams):
            check_has("ngrams", level, "levels that `train` counted", *Level._fields)
        check_has("lexicon", lexicon, "a lexicon that `train` estimated", *Lexicon._fields)
        check_numbers("frequencies", frequencies, "V")
        check_integer("start_token_id", start_token_id, 0, len(frequencies) - 1)
        self._ngrams, self._lexicon, self._frequencies = list(ngrams), lexicon, frequencies
        self._start = start_token_id
        self._make_caches()

    def _make_caches(self) -> None:
        self._looked_up = functools.lru_cache(64)(self._look_up)
        self._followers = functools.lru_cache(MOST_CONTEXTS)(self._continuations)

    @classmethod
    def train(
        cls,
        tokenizer: Any,
        pairs: Iterable[tuple[str, str]],
        order: int = 5,
        max_pairs: int = 200_000,
    ) -> LexicalDraft:
        """Count a text's n-grams and estimate its lexicon, in seconds.

        Args:
            tokenizer: The `Tokenizer` of the model.
            pairs: Pairs (source, target), such as `corpus.train`.
            order: How many tokens the longest n-grams have, from 2 to 8. Defaults to 5.
            max_pairs: How many pairs are read; the first ones. Defaults to 200,000.

        Raises:
            ValueError: If an argument is out of range, or there are no pairs.
        """
        check_integer("order", order, 2, 8)
        sources, targets = encoded_pairs(tokenizer, pairs, max_pairs)
        size = target_size_of(tokenizer)
        counts = np.bincount(np.concatenate(targets), minlength=size) + 0.5
        start = tokenizer.start_token_id
        return cls(
            count_ngrams([[start, *ids] for ids in targets], size, order),
            train_lexicon(sources, targets, tokenizer.vocabulary_size, size),
            (counts / counts.sum()).astype("float32"),
            start,
        )

    def propose(
        self,
        source_ids: Sequence[int],
        output_ids: Sequence[int],
        n: int,
        hidden: np.ndarray | None = None,
    ) -> list[int]:
        """Return the `n` tokens that most likely follow; fewer where it knows none."""
        ratios, suggestions = self._looked_up(tuple(source_ids))
        output = [self._start, *output_ids]
        first = len(output)
        for _ in range(n):
            found, left = self._followers(*output[-len(self._ngrams) :])
            best, most = -1, 0.0
            for token, probability in found.items():
                value = probability * ratios.get(token, PRIOR_SHARE)
                if value > most:
                    best, most = token, value
            for token, probability in suggestions:
                if left * probability <= most:
                    break
                if token not in output and token not in found:
                    best = token
                    break
            if best < 0:
                break
            output.append(best)
        return output[first:]

    def tables(self, source_ids: Sequence[int]) -> DraftTables:
        """Return what is proposed, for an engine that proposes in compiled code; here for any source."""
        return self._tables

    @functools.cached_property
    def _tables(self) -> DraftTables:
        levels, size = self._ngrams, len(self._frequencies)
        bounds = np.cumsum([0, *(len(level.keys) for level in levels)])
        firsts = np.cumsum([0, *(len(level.tokens) for level in levels)])
        contexts = np.zeros((bounds[-1] + 1, 4), "int64")
        contexts[-1] = bounds[-1], firsts[-1], 0, 0
        for number, (level, begin, first) in enumerate(zip(levels, bounds, firsts, strict=False)):
            of_level = contexts[begin : begin + len(level.keys)]
            longer = levels[number + 1].keys if number + 1 < len(levels) else np.zeros(0, "int64")
            children = np.searchsorted(longer, np.arange(len(of_level)) * size)
            of_level[:, CHILDREN] = begin + len(of_level) + children
            of_level[:, FOLLOWERS] = first + level.starts[:-1]
            of_level[:, TOTAL], of_level[:, KINDS] = level.totals, level.kinds
        followers = np.concatenate([(level.tokens, level.counts) for level in levels], axis=1)
        return DraftTables(
            levels=len(levels),
            roots=len(levels[0].keys),
            nodes=np.concatenate([level.keys % size for level in levels]).astype("int32"),
            contexts=contexts,
            followers=np.ascontiguousarray(followers.T, "int32"),
            most=sum(int(np.diff(level.starts).max(initial=0)) for level in levels),
            frequencies=np.array(self._frequencies, "float32"),
            lexicon_starts=np.array(self._lexicon.starts, "int64"),
            lexicon_tokens=np.array(self._lexicon.tokens, "int32"),
            lexicon_probabilities=np.array(self._lexicon.probabilities, "float32"),
            prior_share=PRIOR_SHARE,
        )

    def _look_up(
        self, source_ids: tuple[int, ...]
    ) -> tuple[dict[int, float], list[tuple[int, float]]]:
        """Return `p(y | source) / p(y)` by token, and tokens with `p(y | source)`, the likeliest first."""
        tokens, probabilities = translations(self._lexicon, source_ids)
        priors = self._frequencies[tokens].astype("float64")
        mixed = PRIOR_SHARE * priors + (1 - PRIOR_SHARE) * probabilities
        ratios = dict(zip(tokens.tolist(), (mixed / priors).tolist(), strict=True))
        suggestions = zip(tokens.tolist(), mixed.tolist(), strict=True)
        return ratios, sorted(suggestions, key=lambda pair: -pair[1])

    def _continuations(self, *context: int) -> tuple[dict[int, float], float]:
        return continuations(self._ngrams, context, len(self._frequencies))

    def __getstate__(self) -> dict[str, Any]:
        caches = ("_looked_up", "_followers", "_tables")
        return {name: value for name, value in vars(self).items() if name not in caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_caches()

    def arrays(self) -> dict[str, Any]:
        """Return the counts, the lexicon and the number of the format."""
        arrays: dict[str, Any] = {
            "frequencies": self._frequencies,
            "numbers": np.array([FORMAT, self._start]),
        }
        arrays |= {f"lexicon_{name}": each for name, each in self._lexicon._asdict().items()}
        for size, level in enumerate(self._ngrams, 1):
            arrays |= {f"level{size}_{name}": each for name, each in level._asdict().items()}
        return arrays

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Return the draft of a file's arrays; raise one of `draft_files.ERRORS` if they are none."""
        if any(each.ndim != 1 for each in arrays.values()):
            raise ValueError("its parts are no lists of numbers")
        version, start = map(int, arrays["numbers"])
        levels = [
            Level(*(arrays[f"level{size}_{name}"] for name in Level._fields))
            for size in itertools.takewhile(
                lambda size: f"level{size}_keys" in arrays, itertools.count(1)
            )
        ]
        lexicon = Lexicon(*(arrays[f"lexicon_{name}"] for name in Lexicon._fields))
        frequencies = arrays["frequencies"]
        if version != FORMAT or not levels or not 0 <= start < len(frequencies):
            raise ValueError(f"its format is {version}, or it holds no n-grams")
        _check_arrays(levels, lexicon, frequencies)
        return cls(levels, lexicon, frequencies, start)


def load_draft(path: str | os.PathLike[str]) -> LexicalDraft | DraftHeads:
    """Read what `save` of either draft wrote.

    Raises:
        DamagedFile: If the file holds something else.
    """

    def made(arrays: dict[str, np.ndarray]) -> LexicalDraft | DraftHeads:
        return (DraftHeads if "heads" in arrays else LexicalDraft).of_arrays(arrays)

    return read_draft(path, made, "`keras-attention draft`")


def _check_arrays(levels: Sequence[Level], lexicon: Lexicon, frequencies: np.ndarray) -> None:
    """Raise a ValueError unless every place that is looked up exists."""
    dtypes = ["int64", "int64", "int32", "int32", "int32", "int32"]
    if not (
        all([each.dtype.name for each in level] == dtypes for level in levels)
        and [each.dtype.name for each in lexicon] == ["int64", "int32", "float32"]
        and frequencies.dtype.name == "float32"
    ):
        raise ValueError("its parts are not of the right kind")
    for keys, starts, *rows in [
        (level.keys, level.starts, level.tokens, level.counts) for level in levels
    ] + [(lexicon.starts[1:], lexicon.starts, lexicon.tokens, lexicon.probabilities)]:
        if not (
            len(starts) == len(keys) + 1
            and starts[0] == 0
            # Differences of hostile numbers may overflow.
            and (starts[:-1] <= starts[1:]).all()
            and all(len(row) == starts[-1] for row in rows)
            and ((rows[0] >= 0) & (rows[0] < len(frequencies))).all()
        ):
            raise ValueError("its parts do not fit each other")
    if not all(len(level.keys) == len(level.totals) == len(level.kinds) for level in levels):
        raise ValueError("its parts do not fit each other")
    counts = [each for level in levels for each in (level.totals, level.kinds)]
    positive = (frequencies, lexicon.probabilities, *counts)
    if not all((each > 0).all() for each in positive):
        raise ValueError("it has probabilities that are none")
