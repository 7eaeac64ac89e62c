"""What every format reads from a folder, what the table says of each, and what tokenizers are made of."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.data.model_card import languages_of
from keras_attention.data.sentence_pieces import opened
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.export_folder import MANIFEST, verify_export
from keras_attention.interop.foreign import read_foreign_json
from keras_attention.spec.parts import as_array
from keras_attention.spec.transformer import TransformerSpec
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


UNKNOWN = "<unk>"
# Share of the pieces of a fitting model that are in the vocabulary, and of the vocabulary that are pieces. It
# may lack rare pieces and have further tokens; models of two texts in one language share about half.
LEAST_SHARE = 0.8


def imported_tokenizer(
    pieces: list[list[str]],
    models: Sequence[bytes | None],
    spec: TransformerSpec,
    unknown: Sequence[int],
    source_prefix: Sequence[int] = (),
    ends_source: bool = True,
    **languages: Any,
) -> Tokenizer:
    """Return a tokenizer with the special tokens of a model; see `ImportedPieces.model`."""
    names = ("pad_token_id", "start_token_id", "end_token_id")
    ids = {name: getattr(spec, name) for name in names}
    both = [unknown[0], unknown[-1]]
    model = ImportedPieces.model(pieces, models, ids, both, source_prefix, ends_source, **languages)
    return Tokenizer(model, "imported")


def read_model(path: Path) -> bytes:
    """Return a SentencePiece model."""
    if not path.is_file():
        raise ValueError(
            f"'{path.parent}' lacks {path.name}, the SentencePiece model of its tokenizer."
        )
    model = path.read_bytes()
    try:
        opened(model)
    except ValueError as error:
        raise DamagedFile(
            f"'{path}' is damaged: it holds no SentencePiece model. ({error.__cause__})"
        ) from None
    return model


def usual_pieces(model: bytes) -> set[str]:
    """Return the pieces of a SentencePiece model that text has."""
    known, pieces = opened(model)
    kinds = (known.is_control, known.is_unknown, known.is_byte, known.is_unused)
    return {piece for i, piece in enumerate(pieces) if not any(is_kind(i) for is_kind in kinds)}


def fits(pieces: set[str], known: set[str]) -> bool:
    """Whether most pieces are known."""
    return len(pieces & known) >= LEAST_SHARE * len(pieces)


def id_of(pieces: list[str], piece: str, path: Path) -> int:
    """Return the place of a piece that must be there."""
    try:
        return pieces.index(piece)
    except ValueError:
        raise ValueError(f"'{path}' lacks the token {piece!r}.") from None


def arranged(ids: Mapping[str, Any], size: int, path: Path) -> list[str]:
    """Return the piece of each id of a vocabulary; ids without one get a name that no text has."""
    if not all(type(i) is int and 0 <= i < size for i in ids.values()):
        raise ValueError(f"'{path}' must hold ids from 0 to {size - 1}, the model's vocabulary.")
    if len(set(ids.values())) < len(ids):
        raise ValueError(f"'{path}' has one id for two pieces.")
    pieces = [f"<unused-{i}>" for i in range(size)]
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces


def unused(pieces: list[str]) -> str:
    """Return a name for the padding token that no piece has."""
    names = (f"<pad{number or ''}>" for number in range(len(pieces) + 1))
    return next(name for name in names if name not in pieces)
