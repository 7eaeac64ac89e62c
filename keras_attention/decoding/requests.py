"""What a call of a `Translator` asks for, as tokens; what cannot be had is refused before any work.

Shape letters: B sentences, S source length, L longest hypothesis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_attention.data.joints import Joints
from keras_attention.data.normalization import normalize
from keras_attention.decoding.batching import Batching
from keras_attention.utils.checks import counted, has_surrogate
from keras_attention.utils.scripts import has_no_spaces
from keras_attention.utils.sides import encode_side, end_of, start_of

SHOWN_LETTERS = 60
CLOSING = re.compile(
    r"[.,;:!?…%)\]}،؛؟۔।॥]++(?!\w)"
)  # marks that end a phrase, not those of ".com"


class Request(NamedTuple):
    """A translation, or a sample of it."""

    text: str
    source: Sequence[int]  # its token ids with the end token; empty for an empty text
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


def read_requests(
    tokenizer: Any,
    texts: Sequence[str],
    batching: Batching,
    prefixes: Sequence[str] | None,
    phrases: Sequence[Sequence[str]] | None,
) -> list[Request]:
    """Return a request for each text.

    Raises:
        WrongText: If a source is too long, or an empty one has a prefix or phrases.
        ValueError: If `prefixes` or `phrases` are not such lists.
    """
    start, end = start_of(tokenizer), end_of(tokenizer, "source")
    sources = [
        [*ids, *end] if ids and text.strip() else []
        for text, ids in zip(texts, tokenizer.encode(list(texts)), strict=True)
    ]
    begun: list[Sequence[int]] = [start] * len(texts)
    if prefixes is not None:
        _check_each("prefixes", prefixes, texts, _is_text)
        begun = [ids or start for ids in encode_side(tokenizer, prefixes, "target")]
    wanted: list[list[Sequence[int]]] = [[] for _ in texts]
    if phrases is not None:
        _check_each("phrases", phrases, texts, _is_phrases)
        pairs = [(row, phrase) for row, entry in enumerate(phrases) for phrase in entry]
        found = phrase_ids(tokenizer, [phrase for _, phrase in pairs])
        for (row, _), ids in zip(pairs, found, strict=True):
            if not contains(begun[row], ids, joints_of(tokenizer), is_ended=False):
                wanted[row].append(ids)
    requests = list(map(Request, texts, sources, begun, wanted))
    limit = batching.max_length
    for index, (text, source, prefix, contained, _) in enumerate(requests):
        shown = f"{text[:SHOWN_LETTERS]!r}..."
        if not source and (len(prefix) > len(start) or contained):
            raise WrongText(index, "is empty, so it can have no prefix and no phrases.")
        if limit is not None and len(source) > limit:
            raise WrongText(
                index,
                f"has {len(source)} tokens, end token included, but the model has {limit} positions. "
                f"Split it into sentences: {shown}",
            )
        if not batching.has_room(len(source)):
            raise WrongText(
                index,
                f"has {len(source)} tokens, end token included, which is too long for beam_size="
                f"{batching.beam_size}: memory grows with its square. Take a smaller beam, or split the "
                f"text into sentences: {shown}",
            )
    return requests


def check_room(
    requests: Sequence[Request], limits: Sequence[Mapping[str, int]], min_length: int
) -> None:
    """Raise a `WrongText` if what a translation must contain is longer than it may be.

    Each request has its greatest lengths, end token included, by how to raise them; `min_length` is the least
    of all, end token not included.
    """
    for index, (request, own) in enumerate(zip(requests, limits, strict=True)):
        need = max(min_length, len(request.prefix) + sum(map(len, request.phrases))) + 1
        remedies = [remedy for remedy, limit in own.items() if limit < need]
        if request.source and remedies:
            raise WrongText(
                index,
                f"needs a translation of at least {counted(need, 'token')} with the end token, for its "
                f"prefix, its phrases and `min_length`, but may have {min(own.values())}. Ask for less, or "
                f"{' and '.join(remedies)}: {request.text[:SHOWN_LETTERS]!r}",
            )


def joints_of(tokenizer: Any) -> Joints | None:
    """Return which tokens of translations are joined to one word; None if the tokenizer does not say."""
    return getattr(tokenizer, "joints", None)


def phrase_ids(tokenizer: Any, phrases: Sequence[str]) -> list[list[int]]:
    """Return the ids of phrases as they are spelled within a translation, where a word begins.

    That is as at the beginning of a text, but where the script has no spaces, or where the vocabulary has no
    mark there. A closing mark such as "!" stands behind a word, unless the vocabulary knows it with a space.
    """
    code, joints = len(start_of(tokenizer)), joints_of(tokenizer)
    found = [ids[code:] for ids in encode_side(tokenizer, phrases, "target")] if phrases else []
    for index, phrase in enumerate(phrases):
        before = "(" if has_no_spaces(phrase.strip()[0]) else "( "
        is_inner = joints is not None and found[index] and joints.continues[found[index][0]]
        if before == "(" or is_inner:
            texts = [before, before + phrase.strip()]
            start, ids = (ids[code:] for ids in encode_side(tokenizer, texts, "target"))
            if ids[: len(start)] == start and len(ids) > len(start):
                found[index] = ids[len(start) :]
        elif CLOSING.match(phrase.strip()):
            start, ids = (
                ids[code:] for ids in encode_side(tokenizer, ["a", f"a{phrase.strip()}"], "target")
            )
            if ids[: len(start)] == start and 0 < len(ids) - len(start) < len(found[index]):
                found[index] = ids[len(start) :]
    return found


def contains(
    ids: Sequence[int],
    phrase: Sequence[int],
    joints: Joints | None = None,
    is_ended: bool = True,
) -> bool:
    """Whether a phrase occurs in a sequence, as whole words.

    Args:
        ids: The sequence.
        phrase: The phrase.
        joints: Which tokens are joined to one word; None if every token is a word.
        is_ended: Whether the last word of the sequence does not go on. Defaults to True.

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


def _check_each(
    name: str, values: Any, texts: Sequence[str], is_right: Callable[[Any], bool]
) -> None:
    what = {"prefixes": "a str", "phrases": "a list of str that are not empty"}[name]
    if not isinstance(values, list | tuple) or len(values) != len(texts):
        is_list = isinstance(values, list | tuple)
        received = f"{len(values)} for {len(texts)}" if is_list else repr(values)
        raise ValueError(f"`{name}` must be a list with {what} for each text. Received: {received}")
    for index, entry in enumerate(values):
        if not is_right(entry):
            raise ValueError(
                f"`{name}` must hold {what} for each text. Received: {name}[{index}]={entry!r}"
            )


def _is_text(entry: Any) -> bool:
    return isinstance(entry, str) and not has_surrogate(entry)


def _is_phrases(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and all(
        _is_text(phrase) and normalize(phrase) for phrase in entry
    )
