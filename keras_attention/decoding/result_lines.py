"""Translations as lines of text, for files and pipes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from keras_attention.decoding.translator import LongText
from keras_attention.decoding.unusual_texts import UnusualTexts


def result_lines(
    translator: Any,
    sources: Sequence[str],
    first: int,
    n_best: int,
    as_json: bool,
    unique: bool = True,
    unusual: UnusualTexts | None = None,
) -> Iterator[str]:
    """Translate lines, and yield the result as lines without line ends.

    Args:
        translator: A `Translator`.
        sources: Lines to translate.
        first: Number of the first line.
        n_best: Number of translations per line. More than 1 are written in Moses' form,
            `LINE ||| TEXT ||| SCORE`; 1 is written as the text alone.
        as_json: Whether to write a JSON object per source instead, with all n best.
        unique: Whether the n best differ in their text; there may be fewer then. Defaults to True.
        unusual: Collects the lines unlike those of the training, instead of a warning.

    Raises:
        ValueError: If a line is too long for the model. The message has its number, from 1.
    """
    try:
        results = translator.translate(sources, n_best, unique, unusual)
    except LongText as error:
        raise ValueError(f"Line {first + error.index + 1} {error.problem}") from None
    for index, (source, found) in enumerate(zip(sources, results, strict=True), start=first):
        # Byte tokens can form a line break, which would shift all following lines.
        best = [(" ".join(one.text.splitlines()), one.score) for one in found]
        if as_json:
            translations = [{"text": text, "score": score} for text, score in best]
            yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
        elif n_best > 1:
            yield from (f"{index} ||| {text} ||| {score:.6f}" for text, score in best)
        else:
            yield best[0][0]
