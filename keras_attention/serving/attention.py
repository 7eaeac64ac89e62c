"""The attention of translations, for the page, perhaps without some heads."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

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
# Others that the viewer names beside a token.
RUNNERS_UP = 5
# Models, with and without some heads, whose weights are kept as NumPy computes with them; and names of runs.
MOST_WATCHED, MOST_NAMES = 3, 16


class Wanted(NamedTuple):
    """A translation whose attention is wanted, as a job."""

    name: str  # what the user has called the model
    translator: Any  # what has translated, but for the mask
    text: str
    translation: Translation
    masked: tuple[int, ...] = ()  # as in `fields.Tried`
    contrast: tuple[tuple[int, ...], ...] = ()


class NoAttention(Exception):
    """The attention of a model cannot be had. The message says why."""


class WrongContrast(ValueError):
    """Two words are to be compared that are not there. The message says what is."""


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
        """Answer jobs with what the viewer reads, and a contrast or None."""
        for job in jobs:
            try:
                job.answer.set_result(self._read(job.request))
            except Exception as error:
                job.answer.set_exception(error)

    def _read(self, wanted: Wanted) -> tuple[dict[str, Any], dict[str, Any] | None]:
        # Without a backend there is none; and ONNX files do not say what computes their attention.
        try:
            self._start_keras()
            from keras_attention.visualization.attention_entries import attention_entries
            from keras_attention.visualization.attention_page import with_logged_heads

            model = MaskedModel(self._watched(wanted.translator), wanted.masked)
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
        data = page_data({wanted.name: with_logged_heads(measured(entries), logged)}, {})
        return data, contrast(model, *wanted.contrast) if wanted.contrast else None


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


class MaskedTokenizer:
    """A tokenizer that has padding, which no attention reads, in the place of some tokens of each source."""

    def __init__(self, tokenizer: Any, masked: Sequence[int]):
        self._tokenizer, self._masked = tokenizer, masked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, texts: Any, *, side: str = "source", **options: Any) -> Any:
        """Return what the tokenizer returns, with the mask in sources."""
        rows = self._tokenizer.encode(texts, side=side, **options)
        for place in self._masked if side == "source" else ():
            for row in [rows] if isinstance(texts, str) else rows:
                row[place] = self._tokenizer.pad_token_id
        return rows


class MaskedModel:
    """A `WatchedSpec` in whose sources some tokens are masked, as by `MaskedTokenizer`."""

    def __init__(self, model: WatchedSpec, masked: Sequence[int]):
        self.spec, self.masked = model.spec, masked
        self.pair: tuple[np.ndarray, np.ndarray]  # what it was last asked for
        self._model = model

    def attention_scores(self, source: np.ndarray, target: np.ndarray) -> Any:
        """Return what `WatchedSpec.attention_scores` returns."""
        return self.attention_details(source, target)[0]

    def attention_details(
        self,
        source: np.ndarray,
        target: np.ndarray,
        rows: int | None = None,
        more: Sequence[int] = (),
    ) -> Any:
        """Return what `WatchedSpec.attention_details` returns; `more` tokens are masked, too."""
        self.pair = source, target
        source = source.copy()
        source[:, [*self.masked, *more]] = self.spec.pad_token_id
        return self._model.attention_details(source, target, rows)


def check_masked(translator: Any, text: str, masked: Sequence[int]) -> None:
    """Raise a ValueError if the source has no such tokens, or the engine cannot mask."""
    count = len(translator.tokenizer.encode(text))
    if masked and max(masked) >= count:
        raise ValueError(f"`masked` names token {max(masked) + 1}; the text has {count}.")
    if masked and translator.engine == "ctranslate2":
        raise ValueError("CTranslate2 reads each token: words are masked by the other engines.")


def translator_masked(translator: Any, masked: Sequence[int]) -> Any:
    """Return a translator of texts with these tokens masked."""
    tokenizer = MaskedTokenizer(translator.tokenizer, masked)
    # The tokenizer is one of the languages already.
    return dataclasses.replace(
        translator, tokenizer=tokenizer, source_language=None, target_language=None
    )


def contrast(model: MaskedModel, place: Sequence[int], *words: Sequence[int]) -> dict[str, Any]:
    """Return why a token of the translation that a model was last asked for is there, and not a runner-up.

    This is contrastive input erasure: how much log p(one) - log p(other) loses with a word of the source
    masked ([Yin and Neubig 2022](https://arxiv.org/abs/2202.10419), who take the probabilities themselves).

    Args:
        model: The model.
        place: The token of the translation and the rank of the other one.
        *words: The tokens of each word.

    Returns:
        A dict of `"whole"`, the difference with all words, and `"lost"`, what it loses without each.
    """
    (at, rank), (source, read) = place, model.pair
    output = [*read[0, 1:], model.spec.end_token_id]
    most = max((token for word in words for token in word), default=0)
    if at >= len(output) or rank >= RUNNERS_UP or most >= source.shape[1]:
        raise WrongContrast(
            f"`contrast` must name one of {len(output)} tokens of the translation, one of {RUNNERS_UP} "
            f"others, and words of {source.shape[1]} tokens."
        )

    def scores(word: Sequence[int]) -> np.ndarray:
        logits = model.attention_details(source, read[:, : at + 1], more=word)[2]
        return logits[0, at].astype("float64")

    whole = scores(())
    others = [token for token in np.argsort(-whole, kind="stable") if token != output[at]]
    pair = output[at], others[rank]
    differences = [float(found[pair[0]] - found[pair[1]]) for found in (whole, *map(scores, words))]
    return {"whole": differences[0], "lost": [differences[0] - one for one in differences[1:]]}


def check_size(translator: Any, text: str, translation: Translation) -> None:
    """Raise a `NoAttention` if a text or its translation is too long to be looked at."""
    longest = max(len(translator.tokenizer.encode(text)), len(translation.token_ids))
    if longest >= MOST_TOKENS:
        raise NoAttention(f"The text is too long to show its attention: {longest} tokens.")
