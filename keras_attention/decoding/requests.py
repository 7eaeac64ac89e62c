"""What a call of a `Translator` asks for, as tokens, and in which batches.

What cannot be had is refused before any work.

Shape letters: B sentences, S source length, L longest hypothesis, end token included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_attention.data.joints import Joints
from keras_attention.data.normalization import NONE, normalize
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.utils.checks import counted, has_surrogate
from keras_attention.utils.scripts import has_no_spaces
from keras_attention.utils.sides import encode_side, end_of, start_of, unknown_of

SHORTEST_SOURCE = 16
# Numbers in a search's largest buffers: for each row and beam, a mask over the slots of all beams.
LARGEST_BUFFER = 2**28
# The lines of a batch, and its sizes (B, S, L), padding included.
Batch = tuple[list[int], tuple[int, int, int]]


class Batching(NamedTuple):
    """Groups lines into batches.

    Example:

    >>> Batching(batch_tokens=64, batch_size=None, max_length=None).of_like_length([3, 0, 20, 30])
    [([3, 2], (2, 30, 30)), ([0], (1, 3, 3))]
    """

    batch_tokens: int  # largest number of source positions of a batch, padding included
    # Largest number of lines in a batch; None for no limit but `batch_tokens`.
    batch_size: int | None
    max_length: int | None  # largest number of positions of the model; None for no limit
    beam_size: int = 1  # Number of beams W. Wide beams leave room for fewer rows.
    # Largest number of tokens that a translation may have more than its source.
    max_extra_length: int = 0
    # What `Restrictions` say of the lengths of translations, end token not included; 0 for nothing.
    min_output: int = 0
    max_output: int = 0

    def limits(self, length: int) -> dict[str, int]:
        """Return what limits a translation of a source of this length, by how to raise it: L is the least."""
        limits = {"raise `max_extra_length` (--max-extra-length)": length + self.max_extra_length}
        if self.max_length is not None:
            limits["take a model with more positions"] = self.max_length
        if self.max_output:
            limits["raise `max_length` of the `Restrictions` (--max-length)"] = self.max_output + 1
        return limits

    def of_like_length(self, lengths: Sequence[int]) -> list[Batch]:
        """Batches of lines that are not empty, longest first."""
        lines = _sorted_lines(lengths)
        batches: list[Batch] = []
        start = 0
        while start < len(lines):
            longest = lengths[lines[start]]
            batch = lines[start : start + self._most_rows(max(SHORTEST_SOURCE, longest))]
            batches.append((batch, (len(batch), longest, self._longest(longest))))
            start += len(batch)
        return batches

    def of_few_shapes(self, lengths: Sequence[int]) -> list[Batch]:
        """Return batches of few shapes: S depends only on a line's own length, and dummy rows fill up B."""
        groups: dict[int, list[int]] = {}
        for line in _sorted_lines(lengths):
            groups.setdefault(self._padded_length(lengths[line]), []).append(line)
        batches: list[Batch] = []
        for length, group in groups.items():
            most = self._most_rows(length)
            rows = most if len(group) >= most else min(most, _next_power(len(group), 4))
            sizes = (rows, length, self._longest(length))
            batches += [(group[i : i + rows], sizes) for i in range(0, len(group), rows)]
        return batches

    def _most_rows(self, length: int) -> int:
        """Return the largest number of lines of a padded length in a batch."""
        # Buffers grow with the square of the beam.
        most_searched = LARGEST_BUFFER // (self.beam_size**2 * self._longest(length))
        most = max(1, min(self.batch_tokens // length, most_searched))
        return most if self.batch_size is None else min(most, self.batch_size)

    def _longest(self, length: int) -> int:
        return min(self.limits(length).values())

    def _padded_length(self, length: int) -> int:
        padded = max(SHORTEST_SOURCE, _next_power(length, 2))
        return padded if self.max_length is None else min(padded, self.max_length)


def _sorted_lines(lengths: Sequence[int]) -> list[int]:
    return sorted(
        (line for line, length in enumerate(lengths) if length), key=lambda line: -lengths[line]
    )


def _next_power(number: int, base: int) -> int:
    power = 1
    while power < number:
        power *= base
    return power


SHOWN_LETTERS = 60
# What a model has in common with its tokenizer, and with others that it translates with.
VOCABULARY = (
    *("vocabulary_size", "target_vocabulary_size"),
    *("pad_token_id", "start_token_id", "end_token_id"),
)
# Marks that stand behind a word, not those of ".com".
CLOSING = re.compile(r"[.,;:!?…%)\]}،؛؟۔।॥]++(?!\w)")


class Request(NamedTuple):
    """A translation, or a sample of it."""

    text: str
    source: Sequence[int]  # its token ids with the end token; empty for an empty text
    longest: int = 0  # the most tokens that it may have, end token included
    prefix: Sequence[int] = ()  # token ids with which the translation begins
    # Token ids of phrases that it contains, those in the prefix not named.
    phrases: Sequence[Sequence[int]] = ()
    sample: int = 0  # number of the sample, if translations are drawn


class RequestBatch(NamedTuple):
    """Requests that are searched together, in arrays that may have further rows."""

    requests: Sequence[Request]
    token_ids: np.ndarray  # int32 (B, S), the padded sources
    limits: np.ndarray  # int32 (B,), the longest hypothesis of each; 0 ends the search at once
    longest: int  # L, the longest hypothesis of any batch of this shape
    uniforms: np.ndarray | None  # float32 (B, L), the random numbers of samples


class WrongText(ValueError):
    """A text cannot be translated as it is asked for."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"Text {index} {problem}")
        self.index, self.problem = index, problem


def check_same_vocabulary(model: Any, tokenizer: Any) -> None:
    """Raise a ValueError unless a model and a tokenizer have the same sizes and special ids."""
    # Of one vocabulary for both sides, neither says the target's size.
    for name in VOCABULARY:
        ours, theirs = (getattr(each, name, each.vocabulary_size) for each in (model, tokenizer))
        if ours != theirs:
            raise ValueError(
                f"The model has {name} {ours}, the tokenizer {theirs}: they do not belong "
                "together. Use the tokenizer that the model was trained with."
            )


class RequestReader:
    """Reads the texts of calls of a `Translator` as requests.

    `batching` says how long sources and translations may be; a `Glossary` gives further phrases.
    """

    def __init__(
        self,
        tokenizer: Any,
        batching: Batching,
        glossary: Any = None,
        longest_source: int | None = None,
    ):
        self._tokenizer, self._batching = tokenizer, batching
        self._glossary, self._longest_source = glossary, longest_source
        self._start, self._end = start_of(tokenizer), end_of(tokenizer, "source")

    def __call__(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None,
        phrases: Sequence[Sequence[str]] | None,
        unusual: UnusualTexts | None,
    ) -> list[Request]:
        """Return a request for each text; `unusual` collects those of which else a warning tells.

        Raises:
            WrongText: If a source is too long, an empty one has a prefix or phrases, or a translation has no
                room for what it must contain.
            ValueError: If `prefixes` or `phrases` are not such lists.
        """
        tokenizer = self._tokenizer
        sources = [
            [*ids, *self._end] if ids and text.strip() else []
            for text, ids in zip(texts, tokenizer.encode(list(texts)), strict=True)
        ]
        begun: list[Sequence[int]] = [self._start] * len(texts)
        if prefixes is not None:
            _check_each("prefixes", prefixes, texts)
            begun = [ids or self._start for ids in encode_side(tokenizer, prefixes, "target")]
            for row, ids in enumerate(begun):
                _check_spelled(tokenizer, row, prefixes[row], ids)
        wanted: list[list[Sequence[int]]] = [[] for _ in texts]
        if phrases is not None:
            _check_each("phrases", phrases, texts)
            pairs = [(row, phrase) for row, entry in enumerate(phrases) for phrase in entry]
            found = phrase_ids(tokenizer, [phrase for _, phrase in pairs])
            for (row, phrase), ids in zip(pairs, found, strict=True):
                _check_spelled(tokenizer, row, phrase, ids)
                if not contains(begun[row], ids, joints_of(tokenizer), is_ended=False):
                    wanted[row].append(ids)
        requests = list(map(self._request, range(len(texts)), texts, sources, begun, wanted))
        noted = UnusualTexts() if unusual is None else unusual
        if self._glossary is not None:
            requests = self._glossary.required(requests, tokenizer, noted)
        noted.add(sources, tokenizer, self._longest_source, warns=unusual is None)
        return requests

    def _request(
        self,
        index: int,
        text: str,
        source: Sequence[int],
        prefix: Sequence[int],
        phrases: Sequence[Sequence[int]],
    ) -> Request:
        """Return the request of a text, if there is room for it."""
        batching, shown = self._batching, repr(text[:SHOWN_LETTERS])
        positions = batching.max_length
        if not source and (len(prefix) > len(self._start) or phrases):
            raise WrongText(index, "is empty, so it can have no prefix and no phrases.")
        if positions is not None and len(source) > positions:
            raise WrongText(
                index,
                f"has {len(source)} tokens, end token included, but the model has {positions} positions. "
                f"Split it into sentences: {shown}...",
            )
        limits = batching.limits(len(source))
        longest = min(limits.values())
        if batching.beam_size**2 * longest > LARGEST_BUFFER:
            raise WrongText(
                index,
                f"has {len(source)} tokens, end token included, which is too long for beam_size="
                f"{batching.beam_size}: memory grows with its square. Take a smaller beam, or split the "
                f"text into sentences: {shown}...",
            )
        need = max(batching.min_output, len(prefix) + sum(map(len, phrases))) + 1
        remedies = [remedy for remedy, limit in limits.items() if limit < need]
        if source and remedies:
            raise WrongText(
                index,
                f"needs a translation of at least {counted(need, 'token')} with the end token, for its "
                f"prefix, its phrases and its least length, but may have {longest}. Ask for less, or "
                f"{' and '.join(remedies)}: {shown}",
            )
        return Request(text, source, longest, prefix, phrases)


def joints_of(tokenizer: Any) -> Joints | None:
    """Return which tokens of translations are joined to one word; None if the tokenizer does not say."""
    return getattr(tokenizer, "joints", None)


def phrase_ids(tokenizer: Any, phrases: Sequence[str]) -> list[list[int]]:
    """Return the ids of phrases as they are spelled within a translation, where a word begins.

    That is as at the beginning of a text, but where the script has no spaces, or where the vocabulary has no
    mark there. A closing mark such as "!" stands behind a word, unless the vocabulary knows it with a space.
    """
    code, joints = len(start_of(tokenizer)), joints_of(tokenizer)
    normalization = getattr(tokenizer, "normalization", NONE)
    phrases = [normalize(phrase, normalization).strip() for phrase in phrases]
    found = [ids[code:] for ids in encode_side(tokenizer, phrases, "target")] if phrases else []
    for index, phrase in enumerate(phrases):
        before = "(" if has_no_spaces(phrase[0]) else "( "
        is_inner = joints is not None and found[index] and joints.continues[found[index][0]]
        if before == "(" or is_inner:
            texts = [before, before + phrase]
            start, ids = (ids[code:] for ids in encode_side(tokenizer, texts, "target"))
            if ids[: len(start)] == start and len(ids) > len(start):
                found[index] = ids[len(start) :]
        elif CLOSING.match(phrase):
            start, ids = (
                ids[code:] for ids in encode_side(tokenizer, ["a", f"a{phrase}"], "target")
            )
            if ids[: len(start)] == start and 0 < len(ids) - len(start) < len(found[index]):
                found[index] = ids[len(start) :]
    return found


def contains(
    ids: Sequence[int], phrase: Sequence[int], joints: Joints | None = None, is_ended: bool = True
) -> bool:
    """Whether a phrase occurs in a sequence, as whole words; every token is one without `joints`.

    `is_ended` says whether the last word of the sequence does not go on.

    >>> contains([5, 6, 7], [6, 7]), contains([5, 6], [6, 5])
    (True, False)
    """
    size = len(phrase)
    for start in range(len(ids) - size + 1):
        end = start + size
        if list(ids[start:end]) != list(phrase):
            continue
        if joints is None or not phrase:
            return True
        is_inner = start > 0 and joints.join(ids[start - 1], ids[start])
        if end < len(ids):
            goes_on = joints.join(ids[end - 1], ids[end])
        else:
            goes_on = not is_ended and bool(joints.goes_on[ids[end - 1]])
        if not (is_inner or goes_on):
            return True
    return False


def entries_of(argument: str, lines: Sequence[str]) -> list[Any]:
    """Return lines of a file as entries of an argument of `Translator.translate`.

    >>> entries_of("prefixes", ["Das", ""]), entries_of("phrases", ["Haus\\tein Hund", ""])
    (['Das', ''], [['Haus', 'ein Hund'], []])
    """
    if argument == "phrases":
        return [[phrase for phrase in line.split("\t") if normalize(phrase)] for line in lines]
    return list(lines)


def _check_each(name: str, values: Any, texts: Sequence[str]) -> None:
    what = {"prefixes": "a str", "phrases": "a list of str that are not empty"}[name]
    is_list = isinstance(values, list | tuple)
    if not is_list or len(values) != len(texts):
        received = f"{len(values)} for {len(texts)}" if is_list else repr(values)
        raise ValueError(f"`{name}` must be a list with {what} for each text. Received: {received}")
    for index, entry in enumerate(values):
        is_text = name == "prefixes"  # which may be empty
        asked = [entry] if is_text else entry
        if not isinstance(asked, list | tuple) or not all(
            isinstance(one, str) and not has_surrogate(one) and (is_text or normalize(one))
            for one in asked
        ):
            raise ValueError(
                f"`{name}` must hold {what} for each text. Received: {name}[{index}]={entry!r}"
            )


def _check_spelled(tokenizer: Any, row: int, asked: str, ids: Sequence[int]) -> None:
    if unknown_of(tokenizer, "target") in ids:
        raise WrongText(
            row,
            "cannot have the translation that is asked for: the vocabulary has not all characters of "
            f"{asked[:SHOWN_LETTERS]!r}.",
        )
