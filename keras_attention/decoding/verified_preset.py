"""Whether a preset is whole, and still translates its sample as it did."""

from __future__ import annotations

import os
from typing import NamedTuple

from keras_attention.data.formats.own_preset import PRESET, TOKENIZER
from keras_attention.data.presets import load, preset_folder
from keras_attention.decoding.saved_preset import best_translations, routes
from keras_attention.decoding.translator import Translator
from keras_attention.interop.foreign import Settings

# How far the score of a translation may be from that in the sample: rounding in float32, on any device.
SCORE_TOLERANCE = 1e-3


class VerifiedPreset(NamedTuple):
    """What `verify_preset` has compared.

    Attributes:
        files: Number of files whose checksums fit.
        sentences: Number of sentences in the sample.
        engines: What has translated them again.
        difference: Largest difference of a score from that in the sample, at most `SCORE_TOLERANCE`.
    """

    files: int
    sentences: int
    engines: tuple[str, ...]
    difference: float


def verify_preset(preset: str | os.PathLike[str]) -> VerifiedPreset:
    """Check a preset: the checksums of all its files, and that it still translates its sample as it did.

    The sample is translated by the engine that `Translator.from_preset` takes, by that of the Keras backend
    where it runs the model, and by the plain search. Token ids must be the same, and scores within 0.001.

    Args:
        preset: The folder, or one of the other names that `Translator.from_preset` takes.

    Returns:
        A `VerifiedPreset`: how many files and sentences were compared, and which engines translated.

    Raises:
        DamagedFile: If a file is missing, changed or cut off. The message names it.
        ValueError: If it is not a preset that `Translator.save_to_preset` wrote, or an engine translates a
            sentence of the sample in another way. The message names both.

    Example:

    >>> found = verify_preset("demo_en_de")
    >>> found.sentences, found.engines[-1]
    (5, 'plain')
    """
    folder = preset_folder(preset)
    manifest, found = PRESET.read(folder), load(folder)
    entries = [
        Settings(entry if isinstance(entry, dict) else {}, folder / PRESET.manifest)
        for entry in manifest["sample"]
    ]
    sources = [entry.get("source", str) for entry in entries]
    if found.tokenizer.encode(sources) != [entry.get("source_ids", list) for entry in entries]:
        raise ValueError(f"'{folder / TOKENIZER}' splits the sample into other tokens than it did.")
    largest, engines = 0.0, []
    for translator in routes(Translator, found):
        engine = translator.engine_for(len(sources)).name
        if engine in engines:
            continue
        engines.append(engine)
        for entry, best in zip(entries, best_translations(translator, sources), strict=True):
            difference = abs(best.score - entry.get("score", float))
            if list(best.token_ids) != entry.get("target_ids", list) or not (
                difference <= SCORE_TOLERANCE
            ):
                raise ValueError(
                    f"'{folder}': {engine} translates {entry.values['source']!r} as {best.text!r} (score "
                    f"{best.score:.4f}), but the preset did as {entry.values.get('text')!r} (score "
                    f"{entry.values['score']:.4f})."
                )
            largest = max(largest, difference)
    return VerifiedPreset(len(manifest["sha256"]) + 1, len(sources), tuple(engines), largest)
