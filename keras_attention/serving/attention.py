"""The attention of translations, for the page, by Keras models that are loaded when it is first asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_attention.decoding.translation import Translation
from keras_attention.serving.models import ServedModel
from keras_attention.serving.worker import Job
from keras_attention_viewer.measures import measured
from keras_attention_viewer.page import page_data

# Tokens of a source or a translation: the weights grow with their product, and nobody can look at more.
MOST_TOKENS = 128


class Wanted(NamedTuple):
    """A translation whose attention is wanted, as a job.

    Attributes:
        model: The model that has translated.
        text: The source.
        translation: The translation.
    """

    model: ServedModel
    text: str
    translation: Translation


class NoAttention(Exception):
    """The attention of a model cannot be had. The message says why."""


class AttentionReader:
    """Reads the attention of Keras models, each loaded when it is first asked for.

    Args:
        load: Returns a `Translator` with the Keras model of a name that a user has given.
    """

    def __init__(self, load: Callable[[str], Any]):
        self._load = load
        self._models: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    def __call__(self, jobs: Sequence[Job]) -> None:
        """Answer jobs with what the viewer reads."""
        for job in jobs:
            try:
                job.answer.set_result(self._read(*job.request))
            except Exception as error:
                job.answer.set_exception(error)

    def _read(self, served: ServedModel, text: str, translation: Translation) -> dict[str, Any]:
        # Without a backend there is none, and a model's decoder may have cells in place of attention.
        try:
            if served.name not in self._models:
                self._models[served.name] = self._load(served.name).model
            from keras_attention.visualization.attention_entries import attention_entries
        except (ImportError, ValueError, RuntimeError, OSError) as error:
            raise NoAttention(str(error)) from error
        entries = attention_entries(
            self._models[served.name],
            served.translator.tokenizer,
            [(text, translation.text)],
            step=next(self._numbers),  # The viewer keeps what it has read of a step.
            target="output",
            target_ids=[translation.token_ids],
        )
        return page_data({served.name: measured(entries)}, {})


def check_size(served: ServedModel, text: str, translation: Translation) -> None:
    """Raise a `NoAttention` if a text or its translation is too long to be looked at."""
    longest = max(len(served.translator.tokenizer.encode(text)), len(translation.token_ids))
    if longest >= MOST_TOKENS:
        raise NoAttention(f"The text is too long to show its attention: {longest} tokens.")
