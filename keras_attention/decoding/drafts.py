"""`LexicalDraft`: proposes the next tokens of a translation from n-grams and a lexicon."""

from __future__ import annotations

import functools
import itertools
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_attention.decoding.lexicon import Lexicon, train_lexicon, translations
from keras_attention.decoding.ngrams import Level, continuations, count_ngrams
from keras_attention.utils.checks import (
    check_has,
    check_integer,
    check_iterable,
    check_numbers,
    check_path,
)
from keras_attention.utils.files import DamagedFile, atomic_file
from keras_attention.utils.sides import encode_side, end_of, target_size_of

FORMAT = 1
# How much of a token's probability, given the source, is its share of all text.
PRIOR_SHARE = 0.1
# Of what the source suggests, so many tokens may be proposed that no n-gram does.
MOST_SUGGESTIONS = 64


class LexicalDraft:
    """Proposes the tokens that followed the last ones in a text, weighted by what the source suggests.

    A token y is as good as `p(y | last tokens) p(y | source) / p(y)`: the first factor comes from n-grams
    with back-off (Witten and Bell 1991), the second from the lexicon of model 1 of Brown et al. (1993).
    Make one with `train`, from the text that the model learned from, and give it to a `Translator`. In
    float32 it changes no translation, only the number of passes that the decoder makes. Proposing takes
    time, too, which small models on Numba's engine may not win back.

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
        self._suggested = functools.lru_cache(64)(self._suggestions)

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
        check_has("tokenizer", tokenizer, "a Tokenizer", "encode", "vocabulary_size")
        check_integer("order", order, 2, 8)
        check_integer("max_pairs", max_pairs, 1)
        check_has("pairs", pairs, "pairs (source, target), such as `corpus.train`", "__iter__")
        chosen = [pair for pair in itertools.islice(pairs, max_pairs) if _is_pair(pair)]
        if not chosen:
            raise ValueError("`pairs` must hold pairs (source, target) of text. Received none.")
        end, size = [tokenizer.end_token_id], target_size_of(tokenizer)
        source_end = end_of(tokenizer, "source")
        sources = encode_side(tokenizer, [source for source, _ in chosen], "source")
        targets = encode_side(tokenizer, [target for _, target in chosen], "target")
        sources = [[*ids, *source_end] for ids in sources]
        targets = [[*ids, *end] for ids in targets]
        counts = np.bincount(np.concatenate(targets), minlength=size) + 0.5
        start = tokenizer.start_token_id
        return cls(
            count_ngrams([[start, *ids] for ids in targets], size, order),
            train_lexicon(sources, targets, tokenizer.vocabulary_size, size),
            (counts / counts.sum()).astype("float32"),
            start,
        )

    def propose(self, source_ids: Sequence[int], output_ids: Sequence[int], n: int) -> list[int]:
        """Return the `n` tokens that most likely follow; fewer where it knows none."""
        ratios, suggestions = self._suggested(tuple(source_ids))
        output = [self._start, *output_ids]
        first = len(output)
        for _ in range(n):
            found, left = continuations(self._ngrams, output, len(self._frequencies))
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

    def _suggestions(
        self, source_ids: tuple[int, ...]
    ) -> tuple[dict[int, float], list[tuple[int, float]]]:
        """Return `p(y | source) / p(y)` by token, and the likeliest tokens with `p(y | source)`."""
        given = translations(self._lexicon, source_ids)
        ratios, likely = {}, []
        for token, probability in given.items():
            prior = float(self._frequencies[token])
            mixed = PRIOR_SHARE * prior + (1 - PRIOR_SHARE) * probability
            ratios[token] = mixed / prior
            likely.append((token, mixed))
        return ratios, sorted(likely, key=lambda pair: -pair[1])[:MOST_SUGGESTIONS]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_suggested"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._suggested = functools.lru_cache(64)(self._suggestions)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads, such as `"draft.npz"`; an existing one is replaced."""
        path = check_path("path", path)
        arrays: dict[str, Any] = {
            "frequencies": self._frequencies,
            "numbers": np.array([FORMAT, self._start]),
        }
        arrays |= {f"lexicon_{name}": each for name, each in self._lexicon._asdict().items()}
        for size, level in enumerate(self._ngrams, 1):
            arrays |= {f"level{size}_{name}": each for name, each in level._asdict().items()}
        with atomic_file(path) as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LexicalDraft:
        """Read what `save` wrote. Nothing in it is executed.

        Raises:
            DamagedFile: If it holds something else.
        """
        path = check_path("path", path)
        try:
            arrays = _read_arrays(path)
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
        except (KeyError, ValueError, OverflowError, EOFError, zipfile.BadZipFile) as error:
            raise DamagedFile(
                f"'{path}' is no draft, or is damaged: {error}. `LexicalDraft.train` makes a new one."
            ) from None
        return cls(levels, lexicon, frequencies, start)


def _is_pair(pair: Any) -> bool:
    """Whether it has text on both sides; raise a ValueError if it is no pair of texts."""
    if not isinstance(pair, tuple | list) or [type(text) for text in pair] != [str, str]:
        raise ValueError(
            f"`pairs` must hold pairs (source, target) of text. Received: {pair!r:.60}"
        )
    return all(text.strip() for text in pair)


def _read_arrays(path: Any) -> dict[str, np.ndarray]:
    """Read a file of uncompressed arrays of one dimension, whose sizes its headers say rightly."""
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.compress_type != zipfile.ZIP_STORED or part.flag_bits & 1:
                raise ValueError(f"'{part.filename}' is packed or encrypted")
            with archive.open(part) as file:
                np.lib.format.read_magic(file)
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                size = math.prod(shape) * dtype.itemsize + file.tell()
            if size != part.file_size or len(shape) != 1 or dtype.kind not in "if":
                raise ValueError(f"'{part.filename}' is not the array that it should be")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _check_arrays(levels: Sequence[Level], lexicon: Lexicon, frequencies: np.ndarray) -> None:
    """Raise a ValueError unless every place that is looked up exists."""
    for keys, starts, *rows in [
        (level.keys, level.starts, level.tokens, level.counts) for level in levels
    ] + [(lexicon.starts[1:], lexicon.starts, lexicon.tokens, lexicon.probabilities)]:
        if not (
            len(starts) == len(keys) + 1
            and all(np.issubdtype(each.dtype, np.integer) for each in (starts, rows[0]))
            and starts[0] == 0
            and (np.diff(starts) >= 0).all()
            and all(len(row) == starts[-1] for row in rows)
            and ((rows[0] >= 0) & (rows[0] < len(frequencies))).all()
        ):
            raise ValueError("its parts do not fit each other")
    if not all(len(level.keys) == len(level.totals) == len(level.kinds) for level in levels):
        raise ValueError("its parts do not fit each other")
    if any(not np.issubdtype(e.dtype, np.integer) for level in levels for e in level):
        raise ValueError("its parts do not fit each other")
    counts = [each for level in levels for each in (level.totals, level.kinds)]
    if not (frequencies > 0).all() or any((each <= 0).any() for each in counts):
        raise ValueError("it has probabilities that are none")
