"""Models of Firefox' translations, in Marian's binary format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from keras_attention.data.formats import common
from keras_attention.data.sentence_pieces import opened
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.marian_binary import read_marian
from keras_attention.spec.transformer import TransformerSpec


def sniff(folder: Path) -> bool:
    """Whether a folder has a model."""
    return any(folder.glob("model.*.bin"))


def read(folder: Path) -> common.Loaded:
    """Read a folder."""
    path = _one(folder, sorted(folder.glob("model.*.bin")))
    spec = read_marian(path)
    sides = [sorted(folder.glob(f"{name}*.spm")) for name in ("srcvocab.", "trgvocab.", "vocab.")]
    has_both = bool(sides[0] and sides[1])
    files = [_one(folder, side) for side in (sides[:2] if has_both else sides[2:])]
    said = "".join(re.findall(r"^model\.([a-z]{4})\.", path.name))
    return common.Loaded(
        spec, _tokenizer(spec, files), card=common.card_of_languages([[said[:2], said[2:]]])
    )


FORMAT = common.Format("firefox", "a model of Firefox (model.*.bin, vocab.*.spm)", sniff, read)


def _one(folder: Path, files: Sequence[Path]) -> Path:
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ValueError(
            f"'{folder}' must hold one model.*.bin, and one vocab.*.spm or srcvocab.*.spm and "
            f"trgvocab.*.spm. Found: {names}"
        )
    return files[0]


def _tokenizer(spec: TransformerSpec, files: Sequence[Path]) -> Tokenizer:
    """Return the tokenizer of a model of Firefox, whose last token is padding.

    The files are the SentencePiece model of both languages, or one for the source and one for the target.
    """
    models = [common.read_model(file) for file in files]
    pieces = [opened(model)[1] for model in models]
    sizes = (spec.vocabulary_size, spec.target_vocabulary_size)
    for file, tokens, size in zip(files, pieces, sizes, strict=False):
        if len(tokens) != size - 1:
            raise ValueError(f"'{file}' has {len(tokens)} pieces, the model {size - 1} tokens.")
    unknown = [
        common.id_of(tokens, common.UNKNOWN, file)
        for tokens, file in zip(pieces, files, strict=True)
    ]
    return common.imported_tokenizer(
        [[*tokens, common.unused(tokens)] for tokens in pieces],
        [models[0], models[-1]],
        spec,
        unknown,
    )
