"""The two files of a saved tokenizer, and which others may be in their place."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from keras_attention.utils.files import DamagedFile, OccupiedPath, read_json

FORMAT_VERSION = 1
MODEL_FILE = "tokenizer.model"
METADATA_FILE = "tokenizer.json"
# What fingerprints call an algorithm, if not by its name: existing tokenizers and token stores stay valid.
FINGERPRINT_NAMES = {"presegmented": "given"}
OLD_NORMALIZATION = "nfc"  # Of tokenizers whose metadata do not name any.


def tokenizer_fingerprint(
    model: bytes, algorithm: str, normalization: str, source_prefix: str | None = None
) -> str:
    """Return the hex SHA-256 of everything that decides the ids."""
    how = "" if normalization == OLD_NORMALIZATION else f"{normalization} "
    name = FINGERPRINT_NAMES.get(algorithm, algorithm)
    digest = hashlib.sha256(f"{FORMAT_VERSION} {name} {how}".encode())
    digest.update(model)
    if source_prefix is not None:
        digest.update(f"\0{source_prefix}".encode())
    return digest.hexdigest()


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read `tokenizer.json`.

    Raises:
        ValueError: If it is missing.
        DamagedFile: If it is not what `Tokenizer.save` wrote.
    """
    remedy = "Copy it again or train again."
    try:
        return read_json(folder / METADATA_FILE, remedy)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"'{folder}' holds no tokenizer: {METADATA_FILE} is missing.") from None


def is_saved(folder: Path, model: bytes, fingerprint: str, overwrite: bool) -> bool:
    """Whether a folder holds this tokenizer already. Nothing that somebody else wrote is ever replaced.

    Other programs name their files so, too: a SentencePiece model is often a `tokenizer.model`, and
    Hugging Face writes a `tokenizer.json`.

    Raises:
        OccupiedPath: If one of the files was not written by `Tokenizer.save`, or was changed.
        ValueError: If the folder holds another tokenizer and `overwrite` is False.
    """
    paths = {name: folder / name for name in (METADATA_FILE, MODEL_FILE)}
    there = {name for name, path in paths.items() if path.exists() or path.is_symlink()}
    content, known = None, None
    if MODEL_FILE in there and paths[MODEL_FILE].is_file():
        content = paths[MODEL_FILE].read_bytes()
    if METADATA_FILE in there:
        known = _known(folder)
    fits = content is not None and (
        content == model  # Replaced by itself: a process was killed before it wrote the other file.
        or (known is not None and known["fingerprint"] == _fingerprint_of(content, known))
    )
    foreign = [METADATA_FILE] if METADATA_FILE in there and known is None else []
    foreign += [MODEL_FILE] if MODEL_FILE in there and not fits else []
    if foreign:
        raise OccupiedPath(
            f"'{folder}' holds {' and '.join(foreign)}, which keras_attention did not write, or which "
            "was changed. Nothing was changed. Save to another folder, or move the file away."
        )
    is_same = known is not None and known["fingerprint"] == fingerprint
    if known is not None and not is_same and not overwrite:
        raise ValueError(
            f"'{folder}' holds another tokenizer. Save to another folder, or pass `overwrite=True`."
        )
    return is_same and content == model


def _known(folder: Path) -> dict[str, Any] | None:
    """Return what a `tokenizer.json` of ours says; None if it is not ours."""
    try:
        metadata = read_metadata(folder)
    except (DamagedFile, OSError):
        return None
    needed = ("format_version", "algorithm", "fingerprint")
    return metadata if all(name in metadata for name in needed) else None


def _fingerprint_of(model: bytes, metadata: dict[str, Any]) -> str:
    normalization = metadata.get("normalization", OLD_NORMALIZATION)
    prefix = metadata.get("source_prefix")
    return tokenizer_fingerprint(model, metadata["algorithm"], normalization, prefix)
