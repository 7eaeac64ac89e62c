"""Translations as lines of text, for files and pipes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from keras_attention.decoding.requests import WrongText
from keras_attention.decoding.translation import Translation


def result_lines(
    translator: Any, sources: Sequence[str], first: int, n_best: int, as_json: bool, **asked: Any
) -> Iterator[str]:
    """Translate lines, of which the first has the number `first`, and yield the result without line ends.

    Several translations of a line are written in Moses' form, `LINE ||| TEXT ||| SCORE`, one as the text
    alone; or all as a JSON object. `asked` has further arguments of `Translator.translate`; `mbr`, the
    number of candidates of which one is taken, by `Translator.translate_mbr`; and `details`, which is called
    with the lines and their translations, and returns these with word alignments and scores of tokens.

    Raises:
        ValueError: If what is asked of a line cannot be had. The message has its number, from 1.
    """
    mbr, details = asked.pop("mbr", None), asked.pop("details", None)
    with naming_lines(first):
        if mbr is None:
            results = translator.translate(sources, n_best, **asked)
        else:
            results = [[one] for one in translator.translate_mbr(sources, mbr, **asked)]
    if details is not None:
        results = details(sources, results)
    for index, (source, found) in enumerate(zip(sources, results, strict=True), start=first):
        # Byte tokens can form a line break, which would shift all following lines.
        best = [(" ".join(one.text.splitlines()), one) for one in found]
        if as_json:
            translations = [
                {"text": text, "score": one.score, **_details(one)} for text, one in best
            ]
            yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
            continue
        for text, one in best[: None if n_best > 1 else 1]:
            parts = [str(index), text, f"{one.score:.6f}"] if n_best > 1 else [text]
            if one.alignment is not None:
                parts.append(pharaoh(one.alignment))
            yield " ||| ".join(parts)


@contextlib.contextmanager
def naming_lines(first: int) -> Iterator[None]:
    """Say of which line, from 1, something cannot be had; the first of the texts has the number `first`."""
    try:
        yield
    except WrongText as error:
        raise ValueError(f"Line {first + error.index + 1} {error.problem}") from None


def pharaoh(alignment: Sequence[tuple[int, int]]) -> str:
    """Return an alignment as other programs write it.

    >>> pharaoh([(0, 0), (2, 1)])
    '0-0 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in alignment)


def _details(translation: Translation) -> dict[str, Any]:
    found: dict[str, Any] = {"had_loop": True} if translation.had_loop else {}
    if translation.alignment is not None:
        found |= {"alignment": translation.alignment, "token_scores": translation.token_scores}
    return found
