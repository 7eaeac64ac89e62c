"""How a tokenizer is saved and loaded: its two files, and which others may be in their place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self, cast

from keras_attention.utils.arguments import checked
from keras_attention.utils.files import (
    DamagedFile,
    OccupiedPath,
    atomic_folder,
    read_json,
    remove_leftovers,
    write_atomically,
    write_signed_json,
)

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


def _settings(metadata: dict[str, Any]) -> tuple[str, str, str | None]:
    """Return the algorithm, the normalisation and the prefix; earlier versions wrote only the first."""
    normalization = metadata.get("normalization", OLD_NORMALIZATION)
    return metadata.get("algorithm", ""), normalization, metadata.get("source_prefix")


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read `tokenizer.json`."""
    remedy = "Copy it again or train again."
    try:
        return read_json(folder / METADATA_FILE, remedy)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"'{folder}' holds no tokenizer: {METADATA_FILE} is missing.") from None


class SavedTokenizer:
    """Methods of `Tokenizer` that write and read one."""

    algorithm: str
    normalization: str
    source_prefix: str | None
    vocabulary_size: int
    _model: bytes
    fingerprint: Callable[[], str]

    @checked
    def save(self, folder: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write `tokenizer.model` and `tokenizer.json`.

        If the process is killed meanwhile, the folder holds a whole tokenizer or none: see `is_saved_in`.

        Args:
            folder: Folder to write to; made if absent.
            overwrite: Whether to replace another tokenizer in the folder that `save` wrote. Files of
                these names that other programs wrote are never replaced. Defaults to False.

        Raises:
            OccupiedPath: If the folder is a file, or holds such a file of another program, or one that
                was changed.
            ValueError: If the folder holds another tokenizer and `overwrite` is False.
            OSError: If a file cannot be written; existing ones are then unchanged.
        """
        folder = Path(folder)
        remove_leftovers(folder.parent)
        if is_saved(folder, self._model, self.fingerprint(), overwrite):
            return
        metadata = {
            "format_version": FORMAT_VERSION,
            "algorithm": self.algorithm,
            "normalization": self.normalization,
            "vocabulary_size": self.vocabulary_size,
            **({} if self.source_prefix is None else {"source_prefix": self.source_prefix}),
            "fingerprint": self.fingerprint(),
            "sha256": {MODEL_FILE: hashlib.sha256(self._model).hexdigest()},
        }
        # No other folder can take the place of one that holds more, or of the current folder.
        is_shared = folder.is_dir() and (
            folder.samefile(".")
            or any(file.name not in (MODEL_FILE, METADATA_FILE) for file in folder.iterdir())
        )
        place = nullcontext(folder) if is_shared else atomic_folder(folder, replace=True)
        with place as files:
            write_atomically(files / MODEL_FILE, self._model)
            # Last: it marks the tokenizer as complete.
            write_signed_json(files / METADATA_FILE, metadata)

    @staticmethod
    @checked
    def is_saved_in(folder: str | os.PathLike[str]) -> bool:
        """Whether the folder holds a `tokenizer.json`, which `save` writes last."""
        return (Path(folder) / METADATA_FILE).exists()

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read a tokenizer that `save` wrote.

        Raises:
            ValueError: If a file is missing or damaged, or of a newer format.
        """
        folder = Path(folder)
        metadata = read_metadata(folder)
        if metadata.get("format_version") != FORMAT_VERSION:
            raise ValueError(
                f"'{folder / METADATA_FILE}' has format version "
                f"{metadata.get('format_version')!r}; this package reads version {FORMAT_VERSION}. "
                "Update keras_attention or train again."
            )
        try:
            model = (folder / MODEL_FILE).read_bytes()
        except FileNotFoundError:
            raise ValueError(
                f"'{folder}' holds no {MODEL_FILE}. Copy it there or train again."
            ) from None
        damaged = f"'{folder / MODEL_FILE}' is damaged: it does not belong to {METADATA_FILE}. "
        try:
            tokenizer = cast(Any, cls)(model, *_settings(metadata))
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"{damaged}Copy it again or train again. ({error})") from error
        if tokenizer.fingerprint() != metadata.get("fingerprint"):
            raise ValueError(f"{damaged}Copy both files again or train again.")
        return tokenizer


def is_saved(folder: Path, model: bytes, fingerprint: str, overwrite: bool) -> bool:
    """Whether a folder holds this tokenizer already. Nothing that somebody else wrote is ever replaced.

    Other programs name their files so, too: a SentencePiece model is often a `tokenizer.model`, and
    Hugging Face writes a `tokenizer.json`.
    """
    paths = {name: folder / name for name in (METADATA_FILE, MODEL_FILE)}
    there = {name for name, path in paths.items() if path.exists() or path.is_symlink()}
    content, known = None, None
    if MODEL_FILE in there and paths[MODEL_FILE].is_file():
        content = paths[MODEL_FILE].read_bytes()
    if METADATA_FILE in there:
        known = _known(folder)
    # What is replaced by itself fits: a process was killed before it wrote the other file.
    fits = content == model
    if known is not None and content is not None and not fits:
        fits = tokenizer_fingerprint(content, *_settings(known)) == known["fingerprint"]
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
