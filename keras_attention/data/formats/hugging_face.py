"""Folders of Hugging Face: MarianMT, M2M-100, NLLB-200, mBART, and what `export_hugging_face` writes."""

from __future__ import annotations

from pathlib import Path

from keras_attention.data.formats import common
from keras_attention.data.formats.multilingual import (
    SENTENCE_PIECES,
    TOKENIZER_CONFIG,
    VOCABULARY,
    WHOLE,
    multilingual_tokenizer,
)
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop import hugging_face
from keras_attention.interop.foreign import POSITIONS, Settings, read_foreign_json
from keras_attention.interop.hugging_face_export import export_hugging_face
from keras_attention.interop.onnx_model import DECODER_FILE
from keras_attention.spec.transformer import TransformerSpec

TARGET_VOCABULARY = "target_vocab.json"
# Names of the SentencePiece models of OPUS-MT.
PAIR = ("source.spm", "target.spm")
LANGUAGES = {TOKENIZER_CONFIG: ("source_lang", "target_lang")}


def sniff(folder: Path) -> bool:
    """Whether a folder has settings and weights, or lacks weights alone."""
    config = folder / hugging_face.CONFIG_FILE
    if any((folder / name).is_file() for name in hugging_face.WEIGHT_FILES):
        return config.is_file()
    is_onnx = (folder / DECODER_FILE).is_file()  # Its settings are the same.
    if is_onnx or not config.is_file():
        return False
    with config.open("rb") as file:  # of any size
        return b'"model_type"' in file.read(2**20)


def read(folder: Path, positions: str = POSITIONS[0]) -> common.Loaded:
    """Read a folder."""
    card = common.card_of_own(folder, FORMAT.name) or common.card_of_files(folder, LANGUAGES)
    spec = hugging_face.read_hugging_face(folder, positions)
    is_multilingual = (
        read_foreign_json(folder / hugging_face.CONFIG_FILE, dict)["model_type"]
        in hugging_face.MULTILINGUAL
    )
    tokenizer = (multilingual_tokenizer if is_multilingual else _tokenizer)(folder, spec)
    options = hugging_face.search_options(folder)
    trained = {**common.UNSAID, **hugging_face.dropouts(folder)}
    return common.Loaded(spec, tokenizer, options, None, trained, card)


FORMAT = common.Format(
    "hugging_face",
    f"a MarianMT model of Hugging Face ({hugging_face.CONFIG_FILE}, {hugging_face.SAFE_WEIGHTS} or "
    f"{hugging_face.OLD_WEIGHTS}, {PAIR[0]}, {PAIR[1]}, {VOCABULARY}), or one of M2M-100, NLLB-200 or mBART "
    f"({SENTENCE_PIECES} or {WHOLE} instead)",
    sniff,
    read,
    export_hugging_face,
    has_positions=True,
)


def _tokenizer(folder: Path, spec: TransformerSpec) -> Tokenizer:
    """Return the tokenizer of a MarianMT folder: `source.spm`, `target.spm` and `vocab.json`.

    It gives the ids of `MarianTokenizer`. Special tokens in a text, such as `"</s>"`, are text, though.
    """
    models = [common.read_model(folder / name) for name in PAIR]
    names = [VOCABULARY]
    if (folder / TARGET_VOCABULARY).is_file() and spec.target_embedding is not None:
        names.append(TARGET_VOCABULARY)
    unknown = Settings.of_file(folder / TOKENIZER_CONFIG).get("unk_token", str, common.UNKNOWN)
    sizes = (spec.vocabulary_size, spec.target_vocabulary_size)
    pieces = [_vocabulary(folder / name, size) for name, size in zip(names, sizes, strict=False)]
    if len(pieces) == 1 and sizes[0] != sizes[1]:
        pieces.append(_vocabulary(folder / VOCABULARY, sizes[1]))
    ids = [
        common.id_of(tokens, unknown, folder / name)
        for tokens, name in zip(pieces, [*names, VOCABULARY], strict=False)
    ]
    for name, model, tokens in zip(PAIR, models, [pieces[0], pieces[-1]], strict=True):
        if not common.fits(common.usual_pieces(model), {*tokens}):
            raise ValueError(
                f"'{folder / name}' is another model's: its pieces are not those of {VOCABULARY}."
            )
    return common.imported_tokenizer(pieces, models, spec, ids)


def _vocabulary(path: Path, size: int) -> list[str]:
    if not path.is_file():
        raise ValueError(f"'{path.parent}' lacks {path.name}, the ids of its pieces.")
    return common.arranged(read_foreign_json(path, dict), size, path)
