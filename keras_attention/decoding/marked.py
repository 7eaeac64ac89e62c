"""Translates text with tags and placeholders, which come out at the aligned places."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from keras_attention.data.markup import Markup, placeholders_of
from keras_attention.decoding.requests import WrongText
from keras_attention.decoding.translation import Translation, asked_head, word_links
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.utils.checks import check_has, check_texts
from keras_attention.utils.scripts import word_spans
from keras_attention.utils.sides import encode_ended

# Arguments of `Translator.translate` with an entry for each text.
BESIDE = ("prefixes", "phrases")


@dataclasses.dataclass(frozen=True)
class MarkedTranslator:
    """Translates texts with tags and placeholders, which are put at the aligned places of the translations.

    The model reads the text without tags; then `Markup.carried` puts them where the words inside them have
    gone, by its cross-attention. Placeholders stay in the text at first. Where a translation has not copied
    each of them once, the text is translated without them, and they are put back as tags are.

    Args:
        translator: The `Translator`. Attention is read in its Keras model, or in its spec by NumPy.
        head: The head that says which words belong together, as of `recipes.aligning.with_details`.
        is_html: Whether the texts are HTML, of which only tags are marks. Then each `<` in a translation
            that is no mark of the text comes out as an entity.

    Example:

    ```python
    MarkedTranslator(Translator.from_run("RUN")).translate(["Press <b>OK</b> in {name}."])
    ```
    """

    translator: Any
    head: Sequence[int] | None = None
    is_html: bool = False

    def __post_init__(self) -> None:
        check_has("translator", self.translator, "a `Translator`", "translate", "tokenizer")

    def translate(
        self, texts: Sequence[str], n_best: int = 1, **asked: Any
    ) -> list[list[Translation]]:
        """Return the translations of each text, as `Translator.translate` does.

        What is a tag or a placeholder says `data.markup.Markup`. Only `text` has the marks; all else is of
        the plain text.

        Raises:
            ValueError: As of `Translator.translate`, and if the model has no such head.
        """
        texts = check_texts("texts", texts)
        symbols = getattr(self.translator.tokenizer, "symbols", ())
        marked = [Markup(text, protects=False, symbols=symbols) for text in texts]
        results = self._carried(marked, n_best, asked)
        again = []
        for row, (text, found) in enumerate(zip(texts, results, strict=True)):
            wanted = {} if self.is_html else placeholders_of(text)
            if wanted and any(placeholders_of(each.text) != wanted for each in found):
                again.append(row)
        if again:
            rest = {
                name: [given[row] for row in again] for name in BESIDE if (given := asked.get(name))
            }
            asked |= {**rest, "unusual": UnusualTexts()}  # They have been counted.
            marked = [Markup(texts[row], symbols=symbols) for row in again]
            try:
                bare = self._carried(marked, n_best, asked)
            except WrongText as error:
                raise WrongText(again[error.index], error.problem) from None
            for row, found in zip(again, bare, strict=True):
                results[row] = found
        return results

    @functools.cached_property
    def _attention(self) -> Any:
        return self.translator.watched

    def _carried(
        self, marked: Sequence[Markup], n_best: int, asked: dict[str, Any]
    ) -> list[list[Translation]]:
        """Return the translations of the plain texts, with the marks."""
        tokenizer = self.translator.tokenizer
        results = self.translator.translate([each.plain for each in marked], n_best, **asked)
        places = [
            (row, column)
            for row, each in enumerate(marked)
            for column in range(len(results[row]))
            if each.has_marks
        ]
        links: list[Any] = []
        if places:
            sources = encode_ended(tokenizer, [marked[row].plain for row, _ in places], "source")
            targets = [results[row][column].token_ids for row, column in places]
            links = word_links(
                self._attention,
                tokenizer,
                sources,
                targets,
                [(marked[row].plain, results[row][column].text) for row, column in places],
                asked_head(self.translator.card, self.head),
                splits_scripts=True,
            )
        for (row, column), found in zip(places, links, strict=True):
            each = results[row][column]
            # The words of tokens that are no text, such as an unknown one's, may be others.
            sizes = len(word_spans(marked[row].plain)), len(word_spans(each.text))
            known = [link for link in found if link[0] < sizes[0] and link[1] < sizes[1]]
            text = marked[row].carried(each.text, known)
            results[row][column] = dataclasses.replace(each, text=text)
        if self.is_html:
            for each, best in zip(marked, results, strict=True):
                if not each.has_marks:
                    best[:] = [
                        dataclasses.replace(one, text=one.text.replace("<", "&lt;")) for one in best
                    ]
        return results
