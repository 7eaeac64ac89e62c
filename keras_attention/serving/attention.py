"""The attention of translations, for the page, by Keras models that are loaded when it is first asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from keras_attention.data.presets import is_run
from keras_attention.decoding.translation import Translation
from keras_attention.serving.models import ServedModel
from keras_attention.serving.worker import Job
from keras_attention.spec import TransformerSpec
from keras_attention.spec.heads import Head, without_heads
from keras_attention.spec.parts import as_array
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
        heads: The heads that were switched off.
    """

    model: ServedModel
    text: str
    translation: Translation
    heads: Sequence[Head] = ()


class NoAttention(Exception):
    """The attention of a model cannot be had. The message says why."""


class AttentionReader:
    """Reads the attention of Keras models, each loaded when it is first asked for.

    Args:
        load: Returns a `Translator` with the Keras model of a name that a user has given.
    """

    def __init__(self, load: Callable[[str], Any]):
        self._load = load
        # By name: the model, and what the log of its run says of its heads.
        self._models: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._numbers = itertools.count(1)

    def __call__(self, jobs: Sequence[Job]) -> None:
        """Answer jobs with what the viewer reads."""
        for job in jobs:
            try:
                job.answer.set_result(self._read(job.request))
            except Exception as error:
                job.answer.set_exception(error)

    def _read(self, wanted: Wanted) -> dict[str, Any]:
        name = wanted.model.name
        # Without a backend there is none, and a model's decoder may have cells in place of attention.
        try:
            from keras_attention.visualization.attention_entries import attention_entries
            from keras_attention.visualization.attention_page import logged_of, with_logged_heads

            if name not in self._models:
                logged = logged_of(name) if is_run(name) else {}
                self._models[name] = (self._load(name).model, logged)
        except (ImportError, ValueError, RuntimeError, OSError) as error:
            raise NoAttention(str(error)) from error
        model, logged = self._models[name]
        with switched_off(model, wanted.heads):
            entries = attention_entries(
                model,
                wanted.model.translator.tokenizer,
                [(wanted.text, wanted.translation.text)],
                step=next(self._numbers),  # The viewer keeps what it has read of a step.
                target="output",
                target_ids=[wanted.translation.token_ids],
            )
        return page_data({name: with_logged_heads(measured(entries), logged)}, {})


@contextlib.contextmanager
def switched_off(model: Any, heads: Sequence[Head]) -> Iterator[None]:
    """Let a Keras model compute without some heads within this context."""
    if not heads:
        yield
        return
    whole = model.spec()  # of the model's own variables
    pairs = zip(
        whole.weights().values(), without_heads(whole, heads).weights().values(), strict=True
    )
    changed = [
        (variable, value, as_array(variable).copy())
        for variable, value in pairs
        if value is not variable
    ]
    try:
        for variable, value, _ in changed:
            variable.assign(value)
        yield
    finally:
        for variable, _, before in changed:
            variable.assign(before)


def translator_without(translator: Any, heads: Sequence[Head]) -> Any:
    """Return a translator whose model lacks some heads.

    Raises:
        ValueError: If there is no such head, the model's weights are not known, or no engine runs a spec.
    """
    model = translator.model
    if not isinstance(model, TransformerSpec):
        if not hasattr(model, "spec"):
            raise ValueError(
                f"The heads of a model of the kind {type(model).__name__} cannot be switched off."
            )
        model = model.spec()
    return dataclasses.replace(translator, model=without_heads(model, heads))


def check_size(served: ServedModel, text: str, translation: Translation) -> None:
    """Raise a `NoAttention` if a text or its translation is too long to be looked at."""
    longest = max(len(served.translator.tokenizer.encode(text)), len(translation.token_ids))
    if longest >= MOST_TOKENS:
        raise NoAttention(f"The text is too long to show its attention: {longest} tokens.")
