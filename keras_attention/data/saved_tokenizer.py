"""How a tokenizer is saved and loaded: its two files, and which others may be in their place."""

from __future__ import annotations

import hashlib
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self, cast

from keras_attention.utils.arguments import checked
from keras_attention.utils.files import (
    DamagedFile,
    OccupiedPath,
    atomic_folder,
    remove_leftovers,
    write_atomically,
)
from keras_attention.utils.folder import Folder

MODEL_FILE = "tokenizer.model"
REMEDY = "Copy both files again or train again."
SAVED = Folder("tokenizer", "tokenizer.json", "fingerprint", REMEDY)
# Arguments of `Tokenizer` that are written if they are not None.
OPTIONAL = ("source_prefix", "source_language", "target_language")


class SavedTokenizer:
    """Methods of `Tokenizer` that write and read one."""

    algorithm: str
    normalization: str
    source_prefix: str | None
    source_language: str | None
    target_language: str | None
    vocabulary_size: int
    _model: bytes

    def fingerprint(self) -> str:
        """Return the hex SHA-256 of everything that decides the ids; equal for equal tokenizers."""
        digest = hashlib.sha256(f"{SAVED.version} {self.algorithm} {self.normalization} ".encode())
        digest.update(self._model)
        if self.source_prefix is not None:
            digest.update(f"\0{self.source_prefix}".encode())
        languages = self.source_language, self.target_language
        if any(languages):
            digest.update(f"\0\0{languages}".encode())
        return digest.hexdigest()

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
            "algorithm": self.algorithm,
            "normalization": self.normalization,
            "vocabulary_size": self.vocabulary_size,
            **{name: known for name in OPTIONAL if (known := getattr(self, name)) is not None},
            "fingerprint": self.fingerprint(),
        }
        # No other folder can take the place of one that holds more, or of the current folder.
        is_shared = folder.is_dir() and (
            folder.samefile(".")
            or any(file.name not in (MODEL_FILE, SAVED.manifest) for file in folder.iterdir())
        )
        place = nullcontext(folder) if is_shared else atomic_folder(folder, replace=True)
        with place as files:
            write_atomically(files / MODEL_FILE, self._model)
            # Last: it marks the tokenizer as complete.
            SAVED.seal(files, metadata, [MODEL_FILE])

    @staticmethod
    @checked
    def is_saved_in(folder: str | os.PathLike[str]) -> bool:
        """Whether the folder holds a `tokenizer.json`, which `save` writes last."""
        return (Path(folder) / SAVED.manifest).exists()

    @classmethod
    @checked
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read a tokenizer that `save` wrote.

        Raises:
            ValueError: If a file is missing or damaged, or of a newer format.
        """
        folder = Path(folder)
        metadata = SAVED.read(folder)
        settings = metadata["algorithm"], *map(metadata.get, OPTIONAL)
        try:
            tokenizer = cast(Any, cls)((folder / MODEL_FILE).read_bytes(), *settings)
            if tokenizer.fingerprint() != metadata["fingerprint"]:
                raise ValueError("it has another fingerprint")
        except (ValueError, RuntimeError) as error:
            raise DamagedFile(
                f"'{folder / MODEL_FILE}' is damaged: it does not belong to {SAVED.manifest} ({error}). "
                f"{REMEDY}"
            ) from error
        return tokenizer


def is_saved(folder: Path, model: bytes, fingerprint: str, overwrite: bool) -> bool:
    """Whether a folder holds this tokenizer already. Nothing that somebody else wrote is ever replaced.

    Other programs name their files so, too: a SentencePiece model is often a `tokenizer.model`, and
    Hugging Face writes a `tokenizer.json`.
    """
    there = {name for name in (SAVED.manifest, MODEL_FILE) if os.path.lexists(folder / name)}
    content = known = None
    if (folder / MODEL_FILE).is_file():
        content = (folder / MODEL_FILE).read_bytes()
    with suppress(ValueError):
        known = SAVED.read(folder, verify=False)
    # What is replaced by itself fits: a process was killed before it wrote the other file.
    fits = content == model
    if known is not None and content is not None and not fits:
        fits = known["sha256"].get(MODEL_FILE) == hashlib.sha256(content).hexdigest()
    foreign = [SAVED.manifest] if SAVED.manifest in there and known is None else []
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
