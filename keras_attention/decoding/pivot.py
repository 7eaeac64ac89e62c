"""Translation by way of a third language: one model's translations are the texts of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any

from keras_attention.data.model_card import languages_of
from keras_attention.decoding.translation import Translation
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.utils.arguments import Has, check_fields
from keras_attention.utils.checks import check_texts
from keras_attention.utils.languages import base_language
from keras_attention.utils.sides import LANGUAGES

_Translator = Annotated[Any, Has("a Translator", "translate", "tokenizer", "card")]


@dataclasses.dataclass(frozen=True)
class Pivot:
    """Two translators, one behind the other: what `Translator.then` returns.

    Each keeps its own settings. The second translates the first one's best translation alone, so scores,
    n best, prefixes and phrases are its own, given that text.

    Args:
        first: Translates the texts into the language between.
        second: Translates that into the language wanted.

    Raises:
        ValueError: If they are no translators, or both say their languages, which do not meet.
    """

    first: _Translator
    second: _Translator

    def __post_init__(self) -> None:
        check_fields(self)
        (_, written), (read, _) = map(_languages, (self.first, self.second))
        # Other codes of three letters may be of a language with a shorter one, as `cmn` is of `zh`.
        one, other = (base_language(code or "") for code in (written, read))
        if one != other and len(one) == len(other):
            raise ValueError(
                f"The first model translates into '{written}', but the second one from '{read}': they do not "
                "meet. Take a model that reads what the first one writes."
            )

    def __call__(self, texts: str | Iterable[str], unusual: Any = None) -> Any:
        """Return the best translation of a string (str), or of each of several (list of str)."""
        if isinstance(texts, str):
            return self([texts], unusual)[0]
        return self.second(self.first(check_texts("texts", texts), unusual), _own(unusual))

    def translate(
        self, texts: str | Iterable[str], n_best: int = 1, unusual: Any = None, **asked: Any
    ) -> Any:
        """Return the second translator's translations of the first one's best; see its `translate`."""
        texts = texts if isinstance(texts, str) else check_texts("texts", texts)
        between = self.first(texts, unusual)
        found: list[list[Translation]] | list[Translation] = self.second.translate(
            between, n_best, unusual=_own(unusual), **asked
        )
        return found


def _own(unusual: Any) -> Any:
    """Return what collects unusual texts between; None where a warning tells of them."""
    return None if unusual is None else UnusualTexts()


def _languages(translator: Any) -> tuple[str | None, str | None]:
    """Return the languages that a translator reads and writes, as far as it says them."""
    known = languages_of(translator.card) or (None, None)
    source, target = (
        getattr(translator, name, None) or getattr(translator.tokenizer, name, None) or code
        for name, code in zip(LANGUAGES, known, strict=True)
    )
    return source, target
