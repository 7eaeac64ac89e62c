"""Paragraphs, split into sentences before they are translated and joined behind, by `sentencex`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence

from keras_attention.decoding.requests import WrongText
from keras_attention.utils.languages import base_language, by_code

LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{2,8})*")


def check_split_sentences(name: str, language: str) -> str:
    """Refuse what is no language code, and any if `sentencex` is not installed."""
    is_code = isinstance(language, str) and LANGUAGE.fullmatch(language) is not None
    if not is_code or (len(base := base_language(language)) == 2 and base not in by_code()):
        raise ValueError(
            f"`{name}` must be the language code of the texts, such as 'en', which ISO 639 knows. "
            f"Received: {name}={language!r}"
        )
    if "sentencex" not in sys.modules and importlib.util.find_spec("sentencex") is None:
        raise ImportError(
            f"`{name}` ({language!r}) needs the package sentencex: pip install sentencex"
        )
    return language


def translate_by_sentences(
    translate: Callable[[list[str]], Sequence[str]], texts: Sequence[str], language: str
) -> list[str]:
    """Translate each sentence of each text by itself.

    What stands between two sentences stays: a space, or the empty lines between paragraphs. Where nothing
    does, as in Chinese, a space comes between the translations.
    """
    import sentencex

    # It takes any part of a code for it ("xx-no" is no Norwegian), and splits what it lacks as English.
    language = base_language(language)
    texts_parts = [_parts(sentencex.segment(language, text)) for text in texts]
    sentences = [sentence for parts in texts_parts for sentence, _ in parts]
    try:
        found = iter(translate(sentences))
    except WrongText as error:
        owners = [number for number, parts in enumerate(texts_parts) for _ in parts]
        raise WrongText(owners[error.index], error.problem) from None
    results = []
    for parts in texts_parts:
        # What has no translation leaves no gap.
        translated = [(next(found), gap) for _, gap in parts]
        results.append("".join(text + gap for text, gap in translated if text).strip())
    return results


def _parts(segments: Sequence[str]) -> list[tuple[str, str]]:
    """Return each sentence and the white space behind it.

    >>> _parts(["One. ", "Two!", "\\n\\n", "Three", "Four"])
    [('One.', ' '), ('Two!', '\\n\\n'), ('Three', ' '), ('Four', '')]
    """
    parts: list[tuple[str, str]] = []
    for segment in segments:
        sentence = segment.strip()
        start = segment[: len(segment) - len(segment.lstrip())]
        if parts and start:
            parts[-1] = parts[-1][0], parts[-1][1] + start
        if sentence:
            if parts and not parts[-1][1]:
                parts[-1] = parts[-1][0], " "
            parts.append((sentence, segment[len(segment.rstrip()) :]))
    return parts
