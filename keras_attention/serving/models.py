"""The models of a server: which languages each translates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keras_attention.data.model_card import languages_of

CODE = re.compile(r"[a-z]{2,8}([-_][a-z0-9]{1,8})*", re.IGNORECASE)
# English names of languages, as LibreTranslate gives them; others go by their code.
NAMES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "ca": "Catalan",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "zh": "Chinese",
}


class ServedModel(NamedTuple):
    """A model that translates one language into another.

    Attributes:
        name: What the user has called it.
        source: Code of the language that it reads.
        target: Code of the language that it writes.
        translator: The `Translator`.
    """

    name: str
    source: str
    target: str
    translator: Any

    def most_alternatives(self) -> int:
        """Return how many further translations can be had: all are hypotheses of one beam."""
        return self.translator.beam_size - 1


def check_languages(codes: Sequence[str] | None, number: int) -> list[tuple[str, str]] | None:
    """Return a user's codes as a pair for each model, or None if there are none."""
    if codes is None:
        return None
    wrong = [code for code in codes if not CODE.fullmatch(code)]
    if wrong or len(codes) != 2 * number:
        models = "the model" if number == 1 else f"each of the {number} models"
        raise ValueError(
            f"--languages must be the codes of two languages for {models}, such as `en de`: what it reads "
            f"and what it writes. Received: {' '.join(codes)}"
        )
    lower = [code.lower() for code in codes]
    return list(zip(lower[::2], lower[1::2], strict=True))


def paired(
    names: Sequence[str], translators: Sequence[Any], given: Sequence[tuple[str, str]] | None
) -> list[ServedModel]:
    """Return the models with their languages, which the user or the models' cards say."""
    models: dict[tuple[str, str], ServedModel] = {}
    for index, (name, translator) in enumerate(zip(names, translators, strict=True)):
        pair = languages_of(translator.card) if given is None else given[index]
        if pair is None:
            raise ValueError(
                f"'{name}' does not say which languages it translates. Name them: --languages en de"
            )
        source, target = (code.lower() for code in pair)
        if source == target:
            raise ValueError(
                f"'{name}' would translate '{source}' into itself. Name its languages: --languages en de"
            )
        if (source, target) in models:
            raise ValueError(
                f"'{models[source, target].name}' and '{name}' both translate from '{source}' to '{target}'. "
                "Leave one out."
            )
        models[source, target] = ServedModel(name, source, target, translator)
    return list(models.values())


class Directions:
    """Which model translates what."""

    def __init__(self, models: Sequence[ServedModel]):
        self._models = {(model.source, model.target): model for model in models}

    def find(self, source: str, target: str) -> ServedModel:
        """Return the model for a pair of languages.

        Args:
            source: A code; or `"auto"`, if only one language is translated to `target`.
            target: A code.

        Raises:
            LookupError: If there is none.
        """
        sources = [pair[0] for pair in self._models if pair[1] == target]
        if source == "auto" and len(sources) == 1:
            source = sources[0]
        if (source, target) not in self._models:
            known = ", ".join(f"{one} to {other}" for one, other in self._models)
            reason = f"There is no model from '{source}' to '{target}'"
            if source == "auto" and sources:
                reason = "This server detects no language: name the source"
            raise LookupError(f"{reason}. It translates {known}.")
        return self._models[source, target]

    def languages(self) -> list[Mapping[str, Any]]:
        """Return all languages, each with those that it is translated to."""
        codes = dict.fromkeys(code for pair in self._models for code in pair)
        return [
            {
                "code": code,
                "name": NAMES.get(code, code),
                "targets": [pair[1] for pair in self._models if pair[0] == code],
            }
            for code in codes
        ]

    def first(self) -> ServedModel:
        """Return the first model."""
        return next(iter(self._models.values()))

    def most_alternatives(self) -> int:
        """Return how many further translations can be had of every model."""
        return min(model.most_alternatives() for model in self._models.values())
