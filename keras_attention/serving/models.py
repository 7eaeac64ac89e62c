"""The models of a server: which languages each translates."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keras_attention.data.model_card import languages_of
from keras_attention.utils.checks import did_you_mean

CODE = re.compile(r"[a-z]{2,8}([-_][a-z0-9]{1,8})*", re.IGNORECASE)
# English names of languages, as LibreTranslate gives them; others go by their code.
NAMES = (
    "ar Arabic, bg Bulgarian, ca Catalan, cs Czech, da Danish, de German, el Greek, en English, "
    "es Spanish, et Estonian, fi Finnish, fr French, he Hebrew, hi Hindi, hu Hungarian, "
    "is Icelandic, it Italian, ja Japanese, ko Korean, lt Lithuanian, lv Latvian, nl Dutch, "
    "no Norwegian, pl Polish, pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovenian, "
    "sv Swedish, tr Turkish, uk Ukrainian, zh Chinese"
)
# Translators for two languages of a model that are kept.
MOST_CHOSEN = 1000


class ServedModel(NamedTuple):
    """A model that translates one language into another, or between many."""

    name: str  # what the user has called it
    source: str  # code of the language that it reads if nothing else is asked for
    target: str  # code of the language that it writes
    translator: Any  # the `Translator`, for these two
    # All languages of a model for many, by their codes in small letters.
    codes: Mapping[str, str] = {}

    def __str__(self) -> str:
        if self.codes:
            return f"between {len(self.codes)} languages"
        return f"{self.source} to {self.target}"

    def pairs(self) -> Sequence[tuple[str, str]]:
        """Return the languages that it translates from and into."""
        if self.codes:
            pairs = itertools.permutations(self.codes.values(), 2)
            return [pair for pair in pairs if self.writes(pair[1])]
        return [(self.source, self.target)]

    def writes(self, code: str | None) -> bool:
        """Whether a model for many languages can translate into one."""
        return code in self.translator.tokenizer.target_languages

    def of(self, source: str, target: str) -> ServedModel:
        """Return the model for a pair of its languages."""
        if not self.codes:
            return self
        named = self.codes[source], self.codes[target]
        return self._replace(
            source=named[0], target=named[1], translator=self.translator.in_languages(*named)
        )

    @property
    def most_alternatives(self) -> int:
        """How many further translations can be had: all are hypotheses of one beam."""
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
        tokenizer: Any = getattr(translator, "tokenizer", None)
        codes = {code.lower(): code for code in getattr(tokenizer, "languages", ())}
        tags = {code.lower(): code for code in getattr(tokenizer, "tags", ())}
        if codes and given is None:
            named = tokenizer.source_language, tokenizer.target_language
            source, target = (
                code or other for code, other in zip(named, codes.values(), strict=False)
            )
            if getattr(translator, "glossary", None) is not None:
                raise ValueError(
                    f"A glossary is of two languages, and '{name}' translates between {len(codes)}. Name "
                    "them: --languages en de"
                )
            chosen = translator.in_languages(source, target)
            models[name, ""] = ServedModel(name, source, target, chosen, codes)
            continue
        if pair is None:
            raise ValueError(
                f"'{name}' does not say which languages it translates. Name them: --languages en de"
                + (f" (it translates into {', '.join(tags)})" if tags else "")
            )
        source, target = (code.lower() for code in pair)
        if codes:
            translator = translator.in_languages(*(codes.get(code, code) for code in pair))
        elif target in tags and (given is not None or tokenizer.source_prefix is None):
            translator = translator.in_languages(target_language=tags[target])
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
        self.models = models
        self._codes = {code.lower() for model in models for pair in model.pairs() for code in pair}
        self._of = functools.lru_cache(MOST_CHOSEN)(lambda index, *pair: models[index].of(*pair))

    def find(self, source: str, target: str) -> ServedModel:
        """Return the model for a pair of languages: the first that translates it.

        Codes are in small letters; the source may be `"auto"`, if only one language is translated to the
        target.

        Raises:
            LookupError: If there is none.
        """
        sources = [
            model.source for model in self.models if not model.codes and model.target == target
        ]
        is_many = any(target in model.codes for model in self.models)
        if source == "auto" and len(sources) == 1 and not is_many:
            source = sources[0]
        for index, model in enumerate(self.models):
            known = model.codes
            if (source, target) == (model.source, model.target) or (
                source != target and source in known and model.writes(known.get(target))
            ):
                return self._of(index, source, target)
        reason = f"There is no model from '{source}' to '{target}'"
        if source == "auto" and (sources or is_many):
            reason = "This server detects no language: name the source"
        unknown = next((code for code in (source, target) if code not in self._codes), "")
        hint = did_you_mean(unknown, sorted(self._codes)) if unknown != "auto" else ""
        said = "; ".join(map(str, self.models))
        raise LookupError(f"{reason}.{hint} It translates {said}.")

    def languages(self) -> list[Mapping[str, Any]]:
        """Return all languages, each with those that it is translated to."""
        targets: dict[str, dict[str, None]] = {}
        for pair in itertools.chain.from_iterable(model.pairs() for model in self.models):
            for code in pair:
                targets.setdefault(code, {})
            targets[pair[0]][pair[1]] = None
        names = dict(pair.split() for pair in NAMES.split(", "))
        return [
            {"code": code, "name": names.get(code, code), "targets": [*known]}
            for code, known in targets.items()
        ]
