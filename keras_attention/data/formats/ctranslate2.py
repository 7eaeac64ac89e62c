"""CTranslate2's folders: those of Argos Translate or LibreTranslate, what `export_ctranslate2` wrote."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from keras_attention.data.formats import common
from keras_attention.data.formats.hugging_face import LANGUAGES, PAIR
from keras_attention.data.formats.multilingual import ends_with_language, languages_of
from keras_attention.data.imported_pieces import ImportedPieces
from keras_attention.data.presegmented import SIDES
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.ctranslate2 import MODEL_FILE, export_ctranslate2
from keras_attention.interop.ctranslate2_reader import CTranslate2Model, read_ctranslate2
from keras_attention.interop.export_folder import TARGET_TOKENIZER_FOLDER, TOKENIZER_FOLDER
from keras_attention.interop.foreign import POSITIONS
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.folder import OtherFolder
from keras_attention.utils.run_folder import RunFolder

# In the pieces of SentencePiece, subword-nmt, OpenNMT and GPT-2, which text at spaces never gives.
MARKS = ("\u2581", "@@", "\uffed", "\u0120")
# Where the SentencePiece models of a CTranslate2 model may be, under any name; Argos Translate's is above.
PLACES = ("*", f"{TOKENIZER_FOLDER}/*", f"{TARGET_TOKENIZER_FOLDER}/*", "../sentencepiece.model")
OTHER_FILES = (".json", ".txt", ".bin", ".md")
LARGEST_MODEL = 2**26  # bytes
# Words in the path of a model of one side.
SIDE_NAMES = {"source": ("source", "src"), "target": ("target", "tgt", "trg")}
# What no text tells a SentencePiece model by: it fills up the vocabulary of M2M-100 and NLLB, or is a byte.
FILLING = re.compile(r"madeupword\d+|<0x[0-9A-F]{2}>")


def sniff(folder: Path) -> bool:
    """Whether a folder has a model, or is a package of Argos Translate."""
    return (_place(folder) / MODEL_FILE).is_file()


def read(folder: Path, positions: str = POSITIONS[0]) -> common.Loaded:
    """Read a folder."""
    place = _place(folder)
    own = common.card_of_own(place, FORMAT.name)
    model = read_ctranslate2(place, positions)
    said = {**LANGUAGES, "metadata.json": ("from_code", "to_code")}
    return common.Loaded(
        model.spec, _tokenizer(place, model), card=own or common.card_of_files(folder, said)
    )


FORMAT = common.Format(
    "ctranslate2",
    f"a CTranslate2 model ({MODEL_FILE} and its vocabulary)",
    sniff,
    read,
    export_ctranslate2,
    has_positions=True,
)


def _place(folder: Path) -> Path:
    """Return where the model is: a package of Argos Translate has it in a folder of its own."""
    # An export in the folder of a run is not the run.
    is_here = (folder / MODEL_FILE).is_file() or RunFolder(folder).model.is_file()
    return folder if is_here else folder / "model"


def _tokenizer(folder: Path, model: CTranslate2Model) -> Tokenizer:
    """Return the tokenizer of a CTranslate2 model.

    That of `export_ctranslate2` is in a folder beside it. Others have SentencePiece models, which are known
    by their pieces, and by their names only where both fit both sides. Where there are none, and the
    vocabulary has no marks of subwords, spaces separate the tokens of a text, as
    `ctranslate2.Translator` takes them.
    """
    sides = [model.source_pieces, model.target_pieces]
    own, models = _own_tokenizer(folder), None
    if own is not None:
        sizes = own.vocabulary_size, own.target_vocabulary_size
        found = [
            [own.id_to_token(i, side) for i in range(size)]
            for side, size in zip(SIDES, sizes, strict=True)
        ]
        if found == sides:
            return own
        # Ids of an imported one are others; padding may be one row more.
        is_it = all(
            {*theirs} - {*ours} <= {""} and abs(len(theirs) - len(ours)) <= 1
            for theirs, ours in zip(sides, found, strict=True)
        )
        if not is_it and not (folder / TARGET_TOKENIZER_FOLDER).is_dir():
            raise ValueError(
                f"The tokenizer in '{folder / TOKENIZER_FOLDER}' is another model's: its pieces are not "
                f"those of the vocabulary in '{folder}'. Copy the folder again, or export the model again."
            )
        if is_it and own.algorithm == "imported":
            known = ImportedPieces(own.model).models()
            models = [known.get(side) for side in SIDES]
    languages = languages_of(sides[0]) if sides[0] == sides[1] else {}
    codes = {sides[0][i] for i in languages.values()}
    other = [tokens[i] for tokens in sides for i in languages_of(tokens).values()]
    if other and not codes:
        raise ValueError(
            f"'{folder}' holds a model of two vocabularies with codes of languages, such as {other[0]!r}, "
            "with which its sources or translations begin. Such models are not read."
        )
    usual = [
        [token for token in tokens if not (token in codes or FILLING.fullmatch(token))]
        for tokens in sides
    ]
    models = models or _fitting_models(folder, usual)
    unknown = [tokens.index(model.unknown) for tokens in sides]
    first = [common.id_of(model.source_pieces, token, folder) for token in model.source_prefix]
    named = [[piece or common.unused(tokens) for piece in tokens] for tokens in sides]
    pieces = named[: 2 if named[0] != named[1] else 1]
    # Whoever calls CTranslate2 puts the code and the end token there.
    ends_source = model.ends_source
    if languages:
        starts_with_language = model.spec.start_token_id in languages.values()
        ends_source = not ends_with_language(folder, starts_with_language)
    ends_source = ends_source if own is None else own.ends_source
    tokenizer = common.imported_tokenizer(
        pieces, models, model.spec, unknown, first, ends_source, languages=languages
    )
    if own is not None:
        tokenizer.source_prefix = own.source_prefix
        tokenizer = tokenizer.in_languages(own.source_language, own.target_language)
    return tokenizer


def _own_tokenizer(folder: Path) -> Tokenizer | None:
    """Return the tokenizer that our export has put beside a model; None if another program's is there."""
    with contextlib.suppress(OtherFolder):
        return Tokenizer.load(folder / TOKENIZER_FOLDER)
    return None


def _fitting_models(folder: Path, sides: Sequence[Sequence[str]]) -> list[bytes | None]:
    """Return the SentencePiece models whose pieces the vocabularies of source and target have."""
    found, problems = _sentence_piece_models(folder)
    chosen: list[bytes | None] = []
    for side, tokens in zip(SIDES, map(set, sides), strict=True):
        other = SIDE_NAMES[SIDES[1 - SIDES.index(side)]]
        fitting = [
            file
            for file, (_, pieces) in found.items()
            if common.fits(pieces, tokens) and not any(name in file.lower() for name in other)
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
        if all(common.fits({*tokens}, pieces) for tokens in sides):
            return chosen
    has_marks = any(mark in piece for mark in MARKS for tokens in sides for piece in tokens)
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
            model = common.read_model(file)
        except DamagedFile:
            if file.suffix == ".spm":
                raise
            if file.suffix == ".model":
                problems[name] = "it is no SentencePiece model"
            continue
        found[name] = model, common.usual_pieces(model)
    return found, problems
