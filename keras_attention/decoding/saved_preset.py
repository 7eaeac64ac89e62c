"""A translator as a preset: a folder that Keras reads, with a card and a sample of its translations."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import keras_attention
from keras_attention.data.formats.common import Loaded
from keras_attention.data.formats.own_preset import (
    CARD,
    CARD_TEXT,
    MODEL_OPTIONS,
    PRESET,
    TOKENIZER,
    TOKENIZER_CLASS,
    TOKENIZER_CONFIG,
)
from keras_attention.data.model_card import card_text, check_card
from keras_attention.decoding.translation import Translation
from keras_attention.decoding.unusual_texts import UnusualTexts
from keras_attention.spec.files import as_json
from keras_attention.spec.parts import SpecError, as_array, check_finite
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.backend import running_backend
from keras_attention.utils.checks import check_boolean, check_choice, check_has, check_texts
from keras_attention.utils.files import atomic_folder, write_atomically

WEIGHTS_DTYPES = ("float32", "float16")
SEARCH_OPTIONS = ("beam_size", "length_penalty", "max_extra_length")
# Tokens of the sources in a sample, if no text is known.
SAMPLE_LENGTHS = (3, 5, 8)


def save_preset(
    translator: Any,
    folder: str | os.PathLike[str],
    card: Mapping[str, Any] | None = None,
    sample: Iterable[str] | None = None,
    weights_dtype: str = "float32",
    overwrite: bool = False,
) -> Path:
    """Write a preset; see `Translator.save_to_preset`."""
    check_boolean("overwrite", overwrite)
    check_choice("weights_dtype", weights_dtype, WEIGHTS_DTYPES)
    path = PRESET.check_destination(folder, overwrite)
    given = _checked_card(card)
    sources = _sources(translator) if sample is None else check_texts("sample", sample)
    if not isinstance(translator.model, TransformerSpec):
        check_has("model", translator.model, "a Transformer, or a TransformerSpec", "spec")
    preset = _preset_of(translator, weights_dtype == "float16")
    whole_card = {**_card(preset, weights_dtype), **given}
    translations = best_translations(next(routes(type(translator), preset)), sources)

    from keras_attention.models.keras_folder import write_keras_folder

    with atomic_folder(path, replace=overwrite) as partial:
        places = write_keras_folder(
            partial, preset.spec, preset.model_options, weights_dtype == "float16"
        )
        names = iter([places[weight] for weight in preset.spec.weights()])
        preset.tokenizer.save(partial / TOKENIZER)
        write_atomically(partial / TOKENIZER_CONFIG, json.dumps(TOKENIZER_CLASS) + "\n")
        shown = json.dumps(whole_card, indent=2, ensure_ascii=False)
        write_atomically(partial / CARD, f"{shown}\n")
        write_atomically(partial / CARD_TEXT, card_text(whole_card, path.resolve().name))
        entries = {
            "options": dict(preset.options),
            "longest_source": preset.longest_source,
            "model_options": dict(preset.model_options),
            "sample": [
                {
                    "source": source,
                    "source_ids": preset.tokenizer.encode(source),
                    "target_ids": list(found.token_ids),
                    "text": found.text,
                    "score": found.score,
                }
                for source, found in zip(sources, translations, strict=True)
            ],
            # Both go through the weights in the same order.
            "spec": as_json(preset.spec.map_weights(lambda weight: next(names))),
        }
        PRESET.seal(partial, entries)
    return path


def routes(kind: Any, preset: Loaded) -> Iterator[Any]:
    """Yield translators of this class by different engines, in float32; the first is the usual one."""
    with contextlib.suppress(SpecError):  # Without Keras there may be no engine for it.
        yield kind.from_preset(preset, precision="float32", show_progress=False)

    from keras_attention.models.transformer import Transformer

    model = Transformer.from_spec(preset.spec, dtype="float32")
    options = {**preset.options, "show_progress": False}
    # An engine may refuse a model; the plain search runs all.
    with contextlib.suppress(ValueError):
        yield kind(model, preset.tokenizer, engine=running_backend(), **options)
    yield kind(model, preset.tokenizer, engine="plain", **options)


def _preset_of(translator: Any, in_float16: bool) -> Loaded:
    model = translator.model
    spec = model if isinstance(model, TransformerSpec) else model.spec()
    spec.validate()
    spec.options()  # Refuses what no Transformer has.
    check_finite(spec.weights())
    spec = spec.map_weights(_rounded if in_float16 else as_array)
    for path, weight in spec.weights().items():
        if not np.isfinite(weight).all():
            raise ValueError(
                f"The model's weight {path!r} has numbers that are too large for float16. Leave "
                "`weights_dtype` out."
            )
    options = translator.model_options
    if hasattr(model, "get_config"):
        config = model.get_config()
        options = {name: config[name] for name in MODEL_OPTIONS if name in config}
    search = {name: getattr(translator, name) for name in SEARCH_OPTIONS}
    card = translator.card
    return Loaded(spec, translator.tokenizer, search, translator.longest_source, options, card)


def _rounded(weight: Any) -> np.ndarray:
    """Return a matrix as float16 has it; vectors, which take little room, stay as they are."""
    array = as_array(weight)
    with np.errstate(over="ignore"):  # The caller refuses infinite numbers.
        return array.astype("float16").astype("float32") if array.ndim > 1 else array


def _card(preset: Loaded, weights_dtype: str) -> dict[str, Any]:
    """Return what is known of a model: of its training, if it comes from a run, and of itself."""
    spec, tokenizer = preset.spec, preset.tokenizer
    sizes = [np.size(weight) for weight in spec.weights().values()]
    return {
        **preset.card,
        "saved_by": f"keras_attention {keras_attention.__version__}",
        "model": {
            "parameters": int(sum(sizes)),
            "weights_dtype": weights_dtype,
            "computes_in": spec.dtype,
            **spec.options(),
            **preset.model_options,
        },
        "tokenizer": {
            "algorithm": tokenizer.algorithm,
            "normalization": tokenizer.normalization,
            "vocabulary_size": tokenizer.vocabulary_size,
            "target_vocabulary_size": tokenizer.target_vocabulary_size,
            "fingerprint": tokenizer.fingerprint(),
        },
        "search": dict(preset.options),
    }


def _checked_card(card: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries that a user adds to a card, as JSON reads them back."""
    check_has("card", {} if card is None else card, "a dict", "items", "keys")
    try:
        entries = json.loads(json.dumps(dict(card or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`card` must hold only what JSON can: {error}. Received: {card!r}"
        ) from None
    check_card(entries)
    return entries


def _sources(translator: Any) -> list[str]:
    """Return sentences for a sample: examples of the run, or tokens from all of the vocabulary."""
    examples = translator.card.get("examples") or []
    sources = [row["source"] for row in examples if isinstance(row, dict) and "source" in row]
    if sources:
        return sources
    tokenizer = translator.tokenizer
    # Behind the middle: the first pieces may be bytes.
    size = tokenizer.vocabulary_size
    ids = np.linspace(size // 2, size - 1, 3 * sum(SAMPLE_LENGTHS)).astype(int)
    parts = (ids[offset :: len(SAMPLE_LENGTHS)] for offset in range(len(SAMPLE_LENGTHS)))
    special = {tokenizer.pad_token_id, tokenizer.end_token_id, tokenizer.unknown_token_id}
    return [
        tokenizer.decode([int(i) for i in part if i not in special][:length], side="source")
        for part, length in zip(parts, SAMPLE_LENGTHS, strict=True)
    ]


def best_translations(translator: Any, sources: Sequence[str]) -> list[Translation]:
    """Return the best translation of each source."""
    # A sample need not be of the model's language, so nobody is warned of that.
    return [best for [best] in translator.translate(sources, unusual=UnusualTexts())]
