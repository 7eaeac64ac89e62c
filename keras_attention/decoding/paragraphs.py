"""Paragraphs, split into sentences before they are translated and joined behind, by `sentencex`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence

LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{2,8})*")
# sentencex splits an unknown language as English, without a word; longer codes are not all listed anywhere.
ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu "
    "hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb "
    "lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om "
    "or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv "
    "sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)


def check_split_sentences(name: str, language: str) -> str:
    """Refuse what is no language code, and any if `sentencex` is not installed."""
    is_code = isinstance(language, str) and LANGUAGE.fullmatch(language) is not None
    first = _first_part(language) if is_code else ""
    if not is_code or (len(first) == 2 and first not in ISO_639_1):
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

    language = _first_part(language)
    texts_parts = [_parts(sentencex.segment(language, text)) for text in texts]
    sentences = [sentence for parts in texts_parts for sentence, _ in parts]
    found = iter(translate(sentences))
    results = []
    for parts in texts_parts:
        # What has no translation leaves no gap.
        translated = [(next(found), gap) for _, gap in parts]
        results.append("".join(text + gap for text, gap in translated if text).strip())
    return results


def _first_part(language: str) -> str:
    """Return the language of a code; sentencex may take any part for it: "xx-no" is no Norwegian."""
    return re.split("[-_]", language)[0].lower()


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
