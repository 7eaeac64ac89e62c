"""Translates text with tags and placeholders, which come out at the aligned places."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_attention.data.markup import Markup, placeholders_of
from keras_attention.decoding.requests import WrongText
from keras_attention.decoding.translation import Translation
from keras_attention.decoding.translator import Translator
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.recipes.aligning import check_head, with_details
from keras_attention.utils.checks import check_texts

# What a second reading of translations is for: see `reading_attention`.
ALIGNED = ("alignment", "markup")
# Arguments of `Translator.translate` with an entry for each text.
BESIDE = ("prefixes", "phrases")


def translate_marked(
    translator: Translator,
    texts: Sequence[str],
    n_best: int = 1,
    head: Sequence[int] | None = None,
    **asked: Any,
) -> list[list[Translation]]:
    """Translate texts with tags and placeholders, which are put at the aligned places of the translations.

    The model reads the text without tags; then `Markup.carried` puts them where the words inside them have
    gone, by the alignment of `with_details`. Placeholders stay in the text at first. Where a translation
    has not copied each of them once, the text is translated without them, and they are put back as tags are.

    Args:
        translator: The `Translator` of a Keras model, in which attention can be read.
        texts: The texts. For what is a tag or a placeholder see `data.markup.Markup`.
        n_best: As of `Translator.translate`.
        head: The head that says which words belong together, as of `with_details`.
        **asked: Further arguments of `Translator.translate`.

    Returns:
        For each text its translations. Those of a text without tags, entities and placeholders are the
        translator's. Else `text` has the marks, and all else is of the plain text.

    Raises:
        ValueError: As of `Translator.translate` and `with_details`.

    Example:

    ```python
    translate_marked(Translator.from_run("RUN"), ["Press <b>OK</b> in {name}."])
    ```
    """
    texts = check_texts("texts", texts)
    symbols = getattr(translator.tokenizer, "symbols", ())
    marked = [Markup(text, protects=False, symbols=symbols) for text in texts]
    results = _carried(translator, marked, n_best, head, asked)
    again = []
    for row, (text, found) in enumerate(zip(texts, results, strict=True)):
        wanted = placeholders_of(text)
        if any(placeholders_of(each.text) != wanted for each in found) and wanted:
            again.append(row)
    if again:
        rest = {
            name: [given[row] for row in again] for name in BESIDE if (given := asked.get(name))
        }
        asked |= {**rest, "unusual": UnusualTexts()}  # They have been counted.
        marked = [Markup(texts[row], symbols=symbols) for row in again]
        try:
            bare = _carried(translator, marked, n_best, head, asked)
        except WrongText as error:
            raise WrongText(again[error.index], error.problem) from None
        for row, found in zip(again, bare, strict=True):
            results[row] = found
    return results


def reading_attention(
    translator: Translator, aligned: str | None, head: Sequence[int] | None
) -> tuple[Any, Any]:
    """Return what translates lines, and what adds to their translations, for `result_lines`.

    `aligned` is one of `ALIGNED`, or None for neither; `head` aligns, as of `with_details`.
    """
    if aligned is None:
        return translator, None
    check_head(translator, head)
    if aligned == "markup":
        return MarkedTranslator(translator, head), None
    return translator, lambda texts, found: with_details(translator, texts, found, head)


@dataclasses.dataclass(frozen=True)
class MarkedTranslator:
    """A translator whose `translate` is `translate_marked`."""

    translator: Translator
    head: Sequence[int] | None = None

    def translate(
        self, texts: Sequence[str], n_best: int = 1, **asked: Any
    ) -> list[list[Translation]]:
        """Return the translations of texts with tags and placeholders."""
        return translate_marked(self.translator, texts, n_best, self.head, **asked)


def _carried(
    translator: Translator,
    marked: Sequence[Markup],
    n_best: int,
    head: Sequence[int] | None,
    asked: dict[str, Any],
) -> list[list[Translation]]:
    """Return the translations of the plain texts, with the marks."""
    results = translator.translate([each.plain for each in marked], n_best, **asked)
    rows = [row for row, each in enumerate(marked) if each.has_marks]
    plain = [marked[row].plain for row in rows]
    aligned = with_details(translator, plain, [results[row] for row in rows], head)
    for row, found in zip(rows, aligned, strict=True):
        source = len(marked[row].plain.split())
        for column, each in enumerate(found):
            # The tokenizer may count other words than stand between spaces: it normalises.
            sizes = source, len(each.text.split())
            links = [
                link for link in each.alignment or () if link[0] < sizes[0] and link[1] < sizes[1]
            ]
            text = marked[row].carried(each.text, links)
            results[row][column] = dataclasses.replace(results[row][column], text=text)
    return results
