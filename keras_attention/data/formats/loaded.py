"""What every format reads from a folder, and what the table of formats says of each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_attention.data.model_card import languages_of
from keras_attention.interop.export_folder import MANIFEST, verify_export
from keras_attention.interop.foreign import read_foreign_json
from keras_attention.spec.parts import as_array
from keras_attention.utils.files import DamagedFile

# What is assumed of a model that does not say how it was trained. One that was trained without dropout cannot
# bear it: the perplexity of Firefox' en-pt model on a text rises from 3.7 to 7,900 with a rate of 0.1.
UNSAID = {"dropout": 0.0}


class Loaded(NamedTuple):
    """A pretrained model."""

    # Its structure and weights, NumPy arrays in float32; or an `OnnxModel`, which has none to read.
    spec: Any
    tokenizer: Any  # its tokenizer
    # Arguments of `Translator` that it was made with, such as the size of the beam.
    options: Mapping[str, Any] = {}
    # Number of tokens of the longest source in its training; None if that is not known.
    longest_source: int | None = None
    # Arguments of `Transformer` that are not in its spec: `dropout` and others, as the model was trained.
    # Of one that does not say, `dropout` is 0.
    model_options: Mapping[str, Any] = UNSAID
    card: Mapping[str, Any] = {}  # what is known of it: see `model_card`

    def fingerprint(self) -> str:
        """Return a checksum of the model and the tokenizer: of what decides translations."""
        digest = hashlib.sha256(json.dumps(self.spec.options(), sort_keys=True).encode())
        for path, weight in self.spec.weights().items():
            digest.update(path.encode())
            digest.update(as_array(weight).tobytes())
        digest.update(self.tokenizer.fingerprint().encode())
        return digest.hexdigest()

    def known(self) -> dict[str, Any]:
        """Return the arguments of `Translator` that the model comes with."""
        said = {name: getattr(self, name) for name in ("longest_source", "model_options", "card")}
        return {**self.options, **said}


class Format(NamedTuple):
    """A format in which a folder holds a model."""

    name: str  # its name; if it is written, that for `Translator.export`
    says: str  # what such a folder is, and its files
    sniff: Callable[[Path], bool]  # whether a folder looks like one
    read: Callable[..., Loaded]  # reads such a folder
    # Writes a model and a tokenizer into a folder, with options of the format.
    write: Callable[..., Path] | None = None
    # Whether `read` takes `positions`, too; all others are as the model was trained.
    has_positions: bool = False


def card_of_export(folder: Path, kind: str) -> dict[str, Any]:
    """Return the card that the manifest of an export of ours says, after comparing all files with it."""
    said = languages_of(verify_export(folder, kind))
    return {"languages": [*said]} if said else {}


def card_of_own(folder: Path, kind: str) -> dict[str, Any]:
    """Return the card of a folder that may be an export of ours, and whose files are then compared."""
    return card_of_export(folder, kind) if (folder / MANIFEST).is_file() else {}


def card_of_files(folder: Path, places: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the languages that the entries of JSON files say; nothing if they do not."""
    pairs = []
    for file, names in places.items():
        # A file that is no object says nothing, which nothing needs.
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            known = read_foreign_json(folder / file, dict)
            pairs.append([known.get(name) for name in names])
    return card_of_languages(pairs)


def card_of_languages(pairs: Iterable[list[Any]]) -> dict[str, Any]:
    """Return a card with the first pair whose languages are codes of two letters."""
    codes = [pair for pair in pairs if all(re.fullmatch("[a-z]{2}", str(code)) for code in pair)]
    return {"languages": codes[0]} if codes else {}
