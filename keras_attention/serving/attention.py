"""The attention of translations, for the page, perhaps without some heads."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_attention.data.presets import is_run
from keras_attention.decoding.translation import Translation
from keras_attention.engine.watched import WatchedSpec
from keras_attention.serving.worker import Job
from keras_attention.spec import TransformerSpec
from keras_attention.spec.heads import Head, without_heads
from keras_attention.spec.parts import as_array
from keras_attention_viewer.measures import measured
from keras_attention_viewer.page import page_data

# Tokens of a source or a translation: the weights grow with their product, and nobody can look at more.
MOST_TOKENS = 128
# Models, with and without some heads, whose weights are kept as NumPy computes with them; and names of runs.
MOST_WATCHED, MOST_NAMES = 3, 16


class Wanted(NamedTuple):
    """A translation whose attention is wanted, as a job.

    Attributes:
        name: What the user has called the model.
        translator: What has translated.
        text: The source.
        translation: The translation.
    """

    name: str
    translator: Any
    text: str
    translation: Translation


class NoAttention(Exception):
    """The attention of a model cannot be had. The message says why."""


class AttentionReader:
    """Reads the attention of translations, in NumPy; with Keras, what the models thought."""

    def __init__(self, start_keras: Callable[[], None]):
        self._start_keras = start_keras
        self._watched = functools.lru_cache(MOST_WATCHED)(
            lambda translator: WatchedSpec(spec_of(translator))
        )
        self._logged = functools.lru_cache(MOST_NAMES)(_logged_of)
        self._numbers = itertools.count(1)

    def __call__(self, jobs: Sequence[Job]) -> None:
        """Answer jobs with what the viewer reads."""
        for job in jobs:
            try:
                job.answer.set_result(self._read(job.request))
            except Exception as error:
                job.answer.set_exception(error)

    def _read(self, wanted: Wanted) -> dict[str, Any]:
        # Without a backend there is none; and ONNX files do not say what computes their attention.
        try:
            self._start_keras()
            from keras_attention.visualization.attention_entries import attention_entries
            from keras_attention.visualization.attention_page import with_logged_heads

            model = self._watched(wanted.translator)
        except (ImportError, ValueError, RuntimeError, OSError) as error:
            raise NoAttention(str(error)) from error
        entries = attention_entries(
            model,
            wanted.translator.tokenizer,
            [(wanted.text, wanted.translation.text)],
            step=next(self._numbers),  # The viewer keeps what it has read of a step.
            target="output",
            target_ids=[wanted.translation.token_ids],
        )
        logged = self._logged(wanted.name)
        return page_data({wanted.name: with_logged_heads(measured(entries), logged)}, {})


def _logged_of(name: str) -> dict[str, Any]:
    """Return what the log of a run says of its heads; nothing of other models."""
    from keras_attention.visualization.attention_page import logged_of

    return logged_of(name) if os.path.isdir(name) and is_run(name) else {}


def spec_of(translator: Any) -> TransformerSpec:
    """Return the spec of a translator's model, which may be a Keras model."""
    model = translator.model
    if isinstance(model, TransformerSpec):
        return model
    if not hasattr(model, "spec"):
        raise ValueError(f"A model of the kind {type(model).__name__} does not show its heads.")
    return model.spec().map_weights(as_array)


def translator_without(translator: Any, heads: Sequence[Head]) -> Any:
    """Return a translator whose model lacks some heads."""
    return dataclasses.replace(translator, model=without_heads(spec_of(translator), heads))


def check_size(translator: Any, text: str, translation: Translation) -> None:
    """Raise a `NoAttention` if a text or its translation is too long to be looked at."""
    longest = max(len(translator.tokenizer.encode(text)), len(translation.token_ids))
    if longest >= MOST_TOKENS:
        raise NoAttention(f"The text is too long to show its attention: {longest} tokens.")
