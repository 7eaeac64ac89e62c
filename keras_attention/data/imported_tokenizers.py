"""The tokenizers that stand beside the weights of other programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_attention.data.imported_pieces import ImportedPieces, sentence_piece
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.ctranslate2_reader import CTranslate2Model
from keras_attention.interop.export_folder import TOKENIZER_FOLDER
from keras_attention.interop.foreign import Settings, read_foreign_json
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile

UNKNOWN = "<unk>"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# Names of SentencePiece models beside a CTranslate2 model: a pair, or one for both languages. (OPUS-MT;
# quickmt; Argos Translate and others, whose model is in a folder below.)
PAIRS = (("source.spm", "target.spm"), ("src.spm.model", "tgt.spm.model"))
SHARED = (
    "sentencepiece.model",
    "../sentencepiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "spiece.model",
)


def firefox_tokenizer(spec: TransformerSpec, files: Sequence[Path]) -> Tokenizer:
    """Return the tokenizer of a model of Firefox, whose last token is padding.

    The files are the SentencePiece model of both languages, or one for the source and one for the target.
    """
    models = [_read(file) for file in files]
    pieces = [_pieces_of(model) for model in models]
    sizes = (spec.vocabulary_size, spec.target_vocabulary_size)
    for file, tokens, size in zip(files, pieces, sizes, strict=False):
        if len(tokens) != size - 1:
            raise ValueError(f"'{file}' has {len(tokens)} pieces, the model {size - 1} tokens.")
    unknown = [_id_of(tokens, UNKNOWN, file) for tokens, file in zip(pieces, files, strict=True)]
    return _tokenizer(
        [[*tokens, _unused(tokens)] for tokens in pieces], [models[0], models[-1]], spec, unknown
    )


def hugging_face_tokenizer(folder: Path, spec: TransformerSpec) -> Tokenizer:
    """Return the tokenizer of a MarianMT folder: `source.spm`, `target.spm` and `vocab.json`.

    It gives the ids of `MarianTokenizer`. Special tokens in a text, such as `"</s>"`, are text, though.
    """
    models = [_read(folder / name) for name in PAIRS[0]]
    names = [VOCABULARY]
    if (folder / TARGET_VOCABULARY).is_file() and spec.target_embedding is not None:
        names.append(TARGET_VOCABULARY)
    config = folder / TOKENIZER_CONFIG
    settings = Settings(read_foreign_json(config, dict) if config.is_file() else {}, config)
    unknown = settings.get("unk_token", str, UNKNOWN)
    sizes = (spec.vocabulary_size, spec.target_vocabulary_size)
    pieces = [_vocabulary(folder / name, size) for name, size in zip(names, sizes, strict=False)]
    if len(pieces) == 1 and sizes[0] != sizes[1]:
        pieces.append(_vocabulary(folder / VOCABULARY, sizes[1]))
    ids = [
        _id_of(tokens, unknown, folder / name)
        for tokens, name in zip(pieces, [*names, VOCABULARY], strict=False)
    ]
    return _tokenizer(pieces, models, spec, ids)


def ctranslate2_tokenizer(folder: Path, model: CTranslate2Model) -> Tokenizer:
    """Return the tokenizer of a CTranslate2 model.

    That of `export_ctranslate2` is in a folder beside it. The SentencePiece models of others have one of the
    usual names (see `PAIRS` and `SHARED`). If there are none, spaces separate the tokens of a text, as
    `ctranslate2.Translator` takes them.
    """
    own = folder / TOKENIZER_FOLDER
    if Tokenizer.is_saved_in(own):
        tokenizer = Tokenizer.load(own)
        sizes = tokenizer.vocabulary_size, tokenizer.target_vocabulary_size
        found = [
            [tokenizer.id_to_token(i, side) for i in range(size)]
            for side, size in zip(("source", "target"), sizes, strict=True)
        ]
        if found == [model.source_pieces, model.target_pieces]:
            return tokenizer
    models: list[bytes | None] = [None, None]
    for pair in (*PAIRS, *((name, name) for name in SHARED)):
        if all((folder / name).is_file() for name in pair):
            models = [_read(folder / name) for name in pair]
            break
    sides = [model.source_pieces, model.target_pieces]
    unknown = [tokens.index(model.unknown) for tokens in sides]
    prefix = [_id_of(model.source_pieces, token, folder) for token in model.source_prefix]
    named = [[piece or _unused(tokens) for piece in tokens] for tokens in sides]
    pieces = named[: 2 if named[0] != named[1] else 1]
    return _tokenizer(pieces, models, model.spec, unknown, prefix, model.ends_source)


def _tokenizer(
    pieces: list[list[str]],
    models: Sequence[bytes | None],
    spec: TransformerSpec,
    unknown: Sequence[int],
    source_prefix: Sequence[int] = (),
    ends_source: bool = True,
) -> Tokenizer:
    names = ("pad_token_id", "start_token_id", "end_token_id")
    ids = {name: getattr(spec, name) for name in names}
    both = [unknown[0], unknown[-1]]
    model = ImportedPieces.model(pieces, models, ids, both, source_prefix, ends_source)
    return Tokenizer(model, "imported")


def _read(path: Path) -> bytes:
    """Return a SentencePiece model."""
    if not path.is_file():
        raise ValueError(
            f"'{path.parent}' lacks {path.name}, the SentencePiece model of its tokenizer."
        )
    model = path.read_bytes()
    try:
        sentence_piece(model)
    except ValueError as error:
        raise DamagedFile(f"'{path}' is damaged: {error}") from None
    return model


def _pieces_of(model: bytes) -> list[str]:
    processor = sentence_piece(model)
    return [processor.id_to_piece(i) for i in range(processor.vocab_size())]


def _vocabulary(path: Path, size: int) -> list[str]:
    """Return the piece of each id of a `vocab.json`; ids without one get a name that no text has."""
    if not path.is_file():
        raise ValueError(f"'{path.parent}' lacks {path.name}, the ids of its pieces.")
    ids = read_foreign_json(path, dict)
    if not all(type(i) is int and 0 <= i < size for i in ids.values()):
        raise ValueError(f"'{path}' must hold ids from 0 to {size - 1}, the model's vocabulary.")
    if len(set(ids.values())) < len(ids):
        raise ValueError(f"'{path}' has one id for two pieces.")
    pieces = [f"<unused-{i}>" for i in range(size)]
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces


def _id_of(pieces: list[str], piece: str, path: Path) -> int:
    try:
        return pieces.index(piece)
    except ValueError:
        raise ValueError(f"'{path}' lacks the token {piece!r}.") from None


def _unused(pieces: list[str]) -> str:
    """Return a name for the padding token that no piece has."""
    names = (f"<pad{number or ''}>" for number in range(len(pieces) + 1))
    return next(name for name in names if name not in pieces)
