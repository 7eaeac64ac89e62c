"""The tokenizers that stand beside the weights of other programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from keras_attention.data.imported_pieces import SIDES, ImportedPieces
from keras_attention.data.saved_tokenizer import read_metadata
from keras_attention.data.sentence_pieces import sentence_piece
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.ctranslate2_reader import CTranslate2Model
from keras_attention.interop.export_folder import TARGET_TOKENIZER_FOLDER, TOKENIZER_FOLDER
from keras_attention.interop.foreign import Settings, read_foreign_json
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile

UNKNOWN = "<unk>"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# Names of the SentencePiece models of OPUS-MT.
PAIR = ("source.spm", "target.spm")
MARK = "\u2581"  # begins a word in a vocabulary of SentencePiece
# Where the SentencePiece models of a CTranslate2 model may be, under any name; Argos Translate's is above.
PLACES = ("*", f"{TOKENIZER_FOLDER}/*", f"{TARGET_TOKENIZER_FOLDER}/*", "../sentencepiece.model")
OTHER_FILES = (".json", ".txt", ".bin", ".md")
LARGEST_MODEL = 2**26  # bytes
# Words in the path of a model of one side.
SIDE_NAMES = {"source": ("source", "src"), "target": ("target", "tgt", "trg")}
# Share of the pieces of a fitting model that are in the vocabulary, and of the vocabulary that are pieces. It
# may lack rare pieces and have further tokens; models of two texts in one language share about half.
LEAST_SHARE = 0.8
# Languages in vocabularies of M2M-100, NLLB and mBART, with which sources and translations begin.
LANGUAGE_CODE = re.compile("__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_XX")


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
    models = [_read(folder / name) for name in PAIR]
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
    for name, model, tokens in zip(PAIR, models, [pieces[0], pieces[-1]], strict=True):
        if not _fits(_usual_pieces(model), {*tokens}):
            raise ValueError(
                f"'{folder / name}' is another model's: its pieces are not those of {VOCABULARY}."
            )
    return _tokenizer(pieces, models, spec, ids)


def ctranslate2_tokenizer(folder: Path, model: CTranslate2Model) -> Tokenizer:
    """Return the tokenizer of a CTranslate2 model.

    That of `export_ctranslate2` is in a folder beside it. Others have SentencePiece models, which are known
    by their pieces, and by their names only where both fit both sides. Where there are none, and the
    vocabulary has no marks of SentencePiece, spaces separate the tokens of a text, as
    `ctranslate2.Translator` takes them.

    Raises:
        ValueError: If there are tokenizers and none fits, or none where the vocabulary is SentencePiece's, or
            the vocabulary has codes of languages.
    """
    sides = [model.source_pieces, model.target_pieces]
    own, prefix = _own_tokenizer(folder), None
    if own is not None:
        sizes = own.vocabulary_size, own.target_vocabulary_size
        found = [
            [own.id_to_token(i, side) for i in range(size)]
            for side, size in zip(SIDES, sizes, strict=True)
        ]
        if found == sides:
            return own
        # Ids of an imported one are others; padding may be one row more.
        fits = all(
            {*theirs} - {*ours} <= {""} and abs(len(theirs) - len(ours)) <= 1
            for theirs, ours in zip(sides, found, strict=True)
        )
        if not fits and not (folder / TARGET_TOKENIZER_FOLDER).is_dir():
            raise ValueError(
                f"The tokenizer in '{folder / TOKENIZER_FOLDER}' is another model's: its pieces are not "
                f"those of the vocabulary in '{folder}'. Copy the folder again, or export the model again."
            )
        prefix = own.source_prefix
    if codes := [token for token in sides[0] if LANGUAGE_CODE.fullmatch(token)]:
        raise ValueError(
            f"'{folder}' holds a model whose vocabulary has codes of languages, such as {codes[0]!r}, with "
            "which its sources or translations begin. Such models are not read yet."
        )
    models = _fitting_models(folder, sides)
    unknown = [tokens.index(model.unknown) for tokens in sides]
    first = [_id_of(model.source_pieces, token, folder) for token in model.source_prefix]
    named = [[piece or _unused(tokens) for piece in tokens] for tokens in sides]
    pieces = named[: 2 if named[0] != named[1] else 1]
    tokenizer = _tokenizer(pieces, models, model.spec, unknown, first, model.ends_source)
    tokenizer.source_prefix = prefix
    return tokenizer


def _own_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer that our export has put beside a model; None if another program's is there."""
    own = folder / TOKENIZER_FOLDER
    is_own = Tokenizer.is_saved_in(own) and "fingerprint" in read_metadata(own)
    return Tokenizer.load(own) if is_own else None


def _fitting_models(folder: Path, sides: Sequence[Sequence[str]]) -> list[bytes | None]:
    """Return the SentencePiece models whose pieces the vocabularies of source and target have."""
    found, problems = _sentence_piece_models(folder)
    chosen: list[bytes | None] = []
    for side, tokens in zip(SIDES, map(set, sides), strict=True):
        other = SIDE_NAMES[SIDES[1 - SIDES.index(side)]]
        fitting = [
            file
            for file, (_, pieces) in found.items()
            if _fits(pieces, tokens) and not any(name in file.lower() for name in other)
        ]
        named = [file for file in fitting if any(name in file.lower() for name in SIDE_NAMES[side])]
        different = {found[file][0] for file in named or fitting}
        if len(different) > 1:
            raise ValueError(
                f"'{folder}' has several SentencePiece models that fit its {side}: {', '.join(fitting)}. "
                f"Name them {' and '.join(PAIR)}, or move away those that are not the model's."
            )
        chosen += different or [None]
    if None not in chosen:
        pieces = {piece for model, pieces in found.values() if model in chosen for piece in pieces}
        if all(_fits({*tokens}, pieces) for tokens in sides):
            return chosen
    has_marks = any(MARK in piece for tokens in sides for piece in tokens)
    if not (found or problems or has_marks):
        return [None, None]
    problems |= dict.fromkeys(found, "its pieces are not those of the vocabulary")
    there = "; ".join(f"{file}: {problem}" for file, problem in problems.items()) or "none is there"
    raise ValueError(
        f"'{folder}' has no tokenizer that fits the vocabulary of its model. Looked for: "
        f"SentencePiece models of any name, such as sentencepiece.model, or {' and '.join(PAIR)}; or the "
        f"folder {TOKENIZER_FOLDER} of an export ({there}). Put those of the model there."
    )


def _sentence_piece_models(
    folder: Path,
) -> tuple[dict[str, tuple[bytes, set[str]]], dict[str, str]]:
    """Return the SentencePiece models in a folder with their pieces, and what is wrong with other files."""
    found, problems = {}, {}
    files = (file for place in PLACES for file in sorted(folder.glob(place)))
    for file in files:
        name = file.relative_to(folder).as_posix()
        if not file.is_file() or file.suffix in OTHER_FILES or file.stat().st_size > LARGEST_MODEL:
            continue
        try:
            model = _read(file)
        except DamagedFile:
            if file.suffix == ".spm":
                raise
            if file.suffix == ".model":
                problems[name] = "it is no SentencePiece model"
            continue
        found[name] = model, _usual_pieces(model)
    return found, problems


def _usual_pieces(model: bytes) -> set[str]:
    """Return the pieces of a SentencePiece model that text has."""
    known = sentence_piece(model)
    kinds = (known.is_control, known.is_unknown, known.is_byte, known.is_unused)
    usual = (i for i in range(known.vocab_size()) if not any(is_kind(i) for is_kind in kinds))
    return {known.id_to_piece(i) for i in usual}


def _fits(pieces: set[str], known: set[str]) -> bool:
    return len(pieces & known) >= LEAST_SHARE * len(pieces)


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
        raise DamagedFile(
            f"'{path}' is damaged: it holds no SentencePiece model. ({error.__cause__})"
        ) from None
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
