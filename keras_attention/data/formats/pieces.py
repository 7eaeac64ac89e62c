"""What tokenizers of other programs are made of: SentencePiece models and vocabularies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.data.sentence_pieces import opened
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile

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
