"""Normalisation of text, before it reaches a tokenizer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator


def normalize(text: str) -> str:
    """Normalise text: Unicode NFC, one space for each run of white space, and none at the ends.

    Nothing else is changed: no case folding, and no compatibility folding (NFKC rewrites "½", "²"
    and "…", which a detokenised BLEU would then count as errors). White space is what `str.split`
    splits at, including tabs, line breaks and no-break spaces. U+2581, which SentencePiece writes for a
    space, counts as one.

    Example:

    >>> normalize(" Zwei\\tMa\\u0308nner\\n")
    'Zwei Männer'
    """
    return " ".join(unicodedata.normalize("NFC", text).replace("\u2581", " ").split())


def normalized_texts(texts: Iterable[str]) -> Iterator[str]:
    """Each text normalised.

    Raises:
        ValueError: If an item is not a str, or holds half of a surrogate pair. The message names it.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be an iterable of str. Received: {texts!r}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"Text {position} must be a str. Received: {text!r}")
        if not text.isascii() and re.search("[\ud800-\udfff]", text):
            raise ValueError(
                f"Text {position} holds half of a surrogate pair, which is not a character. Was its file "
                f"read with errors='surrogateescape'? Received: {text!r}"
            )
        yield normalize(text)
