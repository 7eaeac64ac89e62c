"""Translations as lines of text, for files and pipes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def result_lines(
    translator: Any, sources: Sequence[str], first: int, n_best: int, as_json: bool
) -> Iterator[str]:
    """Translate lines; the result as lines without their end.

    Args:
        translator: A `Translator`.
        sources: Lines to translate.
        first: Number of the first line.
        n_best: So many translations of a line, as Moses writes them, `LINE ||| TEXT ||| SCORE`; for 1 the
            text alone.
        as_json: Whether a line of the result is a JSON object with the source and all n best.
    """
    for index, (source, found) in enumerate(
        zip(sources, translator.translate(sources, n_best), strict=True), start=first
    ):
        # A tokenizer of bytes can spell a line break, which would shift all lines after it.
        best = [(" ".join(one.text.splitlines()), one.score) for one in found]
        if as_json:
            translations = [{"text": text, "score": score} for text, score in best]
            yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
        elif n_best > 1:
            yield from (f"{index} ||| {text} ||| {score:.6f}" for text, score in best)
        else:
            yield best[0][0]
