"""What all exports share: the folder that they write, and a tokenizer that must be the model's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.checks import check_has
from keras_attention.utils.folder import Folder, OtherFolder
from keras_attention.utils.sides import target_size_of

MANIFEST = "keras_attention.json"
EXPORT = Folder(
    *("export of this package", MANIFEST, "exported"),
    f"Export the model again, or, if you changed it yourself, take {MANIFEST} away.",
)
TOKENIZER_FOLDER, TARGET_TOKENIZER_FOLDER = "tokenizer", "target_tokenizer"
# Tables of positions take memory.
MOST_POSITIONS = 100_000
Positions = Annotated[int, Ge(2), Le(MOST_POSITIONS)]
Languages = tuple[str, str] | None


def begin_export(
    model: Any,
    tokenizer: Any,
    folder: str | os.PathLike[str],
    overwrite: bool,
    *needed: str,
    target: Any = None,
) -> tuple[TransformerSpec, Path]:
    """Check what all exports are given; return the spec and the folder's path.

    The tokenizers, of the source and of the target if it is another, need the attributes in `needed`.
    """
    if not isinstance(model, TransformerSpec):
        check_has("model", model, "a built Transformer, or its spec", "spec")
    for name, given in (("tokenizer", tokenizer), ("target_tokenizer", target or tokenizer)):
        check_has(name, given, "a Tokenizer", "vocabulary_size", *needed)
    path = EXPORT.check_destination(folder, overwrite)
    spec = model if isinstance(model, TransformerSpec) else model.spec()
    check_tokenizers(spec, tokenizer, target)
    return spec, path


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer; a SentencePiece model gets its normalisation, for programs that read it."""
    if hasattr(tokenizer, "normalizing"):
        tokenizer = tokenizer.normalizing()
    tokenizer.save(folder)


def write_manifest(folder: Path, kind: str, languages: Languages = None, **said: Any) -> None:
    """Write the list of the files of an export of this kind, after all of them, and what else is said."""
    known = {} if languages is None else {"languages": languages}
    EXPORT.seal(folder, {"exported": kind, **known, **said})


def verify_export(folder: Path, kind: str) -> dict[str, Any]:
    """Return the manifest of an export of this kind, after comparing all files with it.

    Raises an OtherFolder if a folder is no such export, a DamagedFile if a file was changed.
    """
    found = EXPORT.read(folder)
    if found["exported"] != kind:
        raise OtherFolder(f"'{folder}' is an export as {found['exported']!r}, not as {kind!r}.")
    return found


def check_tokenizers(spec: TransformerSpec, tokenizer: Any, target: Any = None) -> None:
    """Raise a ValueError unless the tokenizers, of source and perhaps of the target, are the model's."""
    last = tokenizer if target is None else target
    name_of_last = "tokenizer" if last is tokenizer else "target_tokenizer"
    sides = (
        ("tokenizer", tokenizer, "vocabulary_size", tokenizer.vocabulary_size),
        (name_of_last, last, "target_vocabulary_size", target_size_of(last)),
    )
    for side, given, size, number in sides:
        for name in (size, "pad_token_id", "start_token_id", "end_token_id"):
            ours, theirs = getattr(spec, name), number if name == size else getattr(given, name)
            if ours != theirs:
                raise ValueError(
                    f"The model has {name} {ours}, the {side} {theirs}: they do not belong together. "
                    "Use the tokenizer that the model was trained with."
                )
