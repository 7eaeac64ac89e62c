"""The form of text that tokenizers see."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator


def normalize(text: str) -> str:
    """Unicode NFC, each run of white space one space, none at the ends.

    Nothing else is changed: no case folding, and no compatibility folding (NFKC rewrites "½", "²"
    and "…", which a detokenised BLEU would then count as errors). White space is what `str.split`
    says: tabs, line breaks and no-break spaces too. U+2581, which SentencePiece writes for a space,
    is one.

    Example:

    >>> normalize(" Zwei\\tMa\\u0308nner\\n")
    'Zwei Männer'
    """
    return " ".join(unicodedata.normalize("NFC", text).replace("\u2581", " ").split())


def normalized_texts(texts: Iterable[str]) -> Iterator[str]:
    """Each text normalised.

    Raises:
        ValueError: Names the first item that is no str, or holds what is no character.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be an iterable of str. Received: {texts!r}")
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"Text {position} must be a str. Received: {text!r}")
        if not text.isascii() and re.search("[\ud800-\udfff]", text):
            raise ValueError(
                f"Text {position} holds half of a surrogate pair, which is no character: {text!r}. "
                "Was its file read with errors='surrogateescape'?"
            )
        yield normalize(text)
