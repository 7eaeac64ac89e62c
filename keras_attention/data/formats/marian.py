"""Marian's own files: `.npz` with `vocab.yml`, as Marian trains them and Tatoeba-MT packs them."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.data.formats import common
from keras_attention.data.formats.hugging_face import PAIR
from keras_attention.interop import foreign
from keras_attention.interop.marian_binary import Items, simple_yaml, spec_of
from keras_attention.utils.checks import check_number
from keras_attention.utils.files import DamagedFile

DECODER = "decoder.yml"  # Names the model and its vocabularies, and says how Marian searches.
# What changes translations there, and the only value of each that a search here has.
NEUTRAL = {"word-penalty": 0, "allow-unk": False, "shortlist": []}
END = "</s>"
OPTIMIZER = ".optimizer.npz"  # The end of the name of what a training needs beside its model.
# Their types in the archive -> those of Marian's binary format.
TYPE_OF = {"|i1": 0x101, "<f2": 0x402, "<f4": 0x404, "<f8": 0x408}
# An entry of a vocabulary. YAML quotes a piece that would mean something else, and may give it a line.
ENTRY = re.compile(
    r"""(?:\? )?("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^"'\n].*?)\n?: +(\d{1,9})(?=\n|\Z)"""
)
HEX = "[0-9a-fA-F]"
ESCAPED = re.compile(rf"\\(?:x({HEX}{{2}})|u({HEX}{{4}})|U000({HEX}{{5}})|(.))")


def sniff(folder: Path) -> bool:
    """Whether a folder has a vocabulary, or what names one, beside a model."""
    return bool(_models(folder)) and (
        (folder / DECODER).is_file() or any(folder.glob("*vocab*.yml"))
    )


def read(folder: Path, positions: str = foreign.POSITIONS[0]) -> common.Loaded:
    """Read a folder."""
    path = folder / DECODER
    is_named = path.is_file()
    settings = foreign.Settings(simple_yaml(_text(path)) if is_named else {}, path)
    models, files = _models(folder), sorted(folder.glob("*vocab*.yml"))
    if is_named:
        models, files = (_files(settings, name) for name in ("models", "vocabs"))
    if len(models) != 1 or not 1 <= len(files) <= 2:
        names = ", ".join(file.name for file in [*models, *files])
        raise ValueError(
            f"'{folder}' must hold one model.npz, and one vocab.yml or that of the source and that of the "
            f"target{f', as {DECODER} names them' if is_named else ''}. Found: {names}"
        )
    options = _search_options(settings)
    spec = spec_of(_read_items(models[0]), models[0])
    if positions != foreign.POSITIONS[0]:
        spec = foreign.checked(lambda: foreign.as_transformers(spec), models[0])
    size = spec.vocabulary_size - 1  # without padding
    sides = [(common.arranged(_read_vocabulary(file), size, file), file) for file in files]
    if sides[0][0] == sides[-1][0]:
        sides = sides[:1]
    pieces = [common.read_model(folder / name) for name in PAIR]
    names = ", ".join(file.name for file in files)
    # Which vocabulary is the source's, their content says if nothing names them.
    orders = [
        order
        for order in (sides, sides[::-1])[: 1 if is_named else len(sides)]
        if all(
            common.fits(common.usual_pieces(model), {*tokens})
            for model, (tokens, _) in zip(pieces, (order[0], order[-1]), strict=True)
        )
    ]
    if len(orders) != 1:
        fit = "fit in either order" if orders else "do not fit"
        raise ValueError(f"'{folder}': {' and '.join(PAIR)} {fit} the pieces of {names}.")
    unknown, ends = (
        [common.id_of(tokens, special, file) for tokens, file in orders[0]]
        for special in (common.UNKNOWN, END)
    )
    if ends[0] != ends[-1]:
        raise ValueError(
            f"'{folder}': {END} has the ids {ends} in {names}; read is one id for both."
        )
    spec = dataclasses.replace(
        spec, end_token_id=ends[0], suppressed_token_ids=(unknown[-1], spec.pad_token_id)
    )
    rows = [[*tokens, common.unused(tokens)] for tokens, _ in orders[0]]
    card = _card(models[0].with_suffix(".yml"))
    return common.Loaded(
        spec, common.imported_tokenizer(rows, pieces, spec, unknown), options, card=card
    )


FORMAT = common.Format(
    "marian",
    f"a model of Marian (model.npz, vocab.yml, {PAIR[0]}, {PAIR[1]}, perhaps {DECODER})",
    sniff,
    read,
    has_positions=True,
)


def _models(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.npz"))
    return [file for file in files if not file.name.endswith(OPTIMIZER)]


def _files(settings: foreign.Settings, name: str) -> list[Path]:
    """Return the files that a list of settings names, each once; they must be beside the settings."""
    files = [settings.path.parent / str(each) for each in settings.get(name, list, [])]
    for file in files:
        if file.parent != settings.path.parent or not file.is_file():
            raise ValueError(
                f"'{settings.path}': {name!r} must be files beside it. Received: {file}. Put the file there, "
                "and write its name alone."
            )
    return [*dict.fromkeys(files)]


def _search_options(settings: foreign.Settings) -> dict[str, Any]:
    """Return the arguments of `Translator` that Marian's settings of its search are."""
    settings.refuse_unless(NEUTRAL)
    options: dict[str, Any] = {}
    values = settings.values
    if "beam-size" in values:
        options["beam_size"] = settings.number("beam-size")
    if "normalize" in values:
        name = f"normalize in '{settings.path}'"
        alpha = options["length_penalty"] = check_number(name, values["normalize"], 0, 10)
        if alpha:
            warnings.warn(
                f"`{name}` is {alpha:g}: Marian divides scores by the length to this power, this package by "
                "(5 + length) / 6 (`length_penalty`). Translations of other lengths may win.",
                stacklevel=2,
            )
    return options


def _card(path: Path) -> dict[str, Any]:
    """Return the languages that the description of a release says, if they are a pair."""
    said = simple_yaml(_text(path)) if path.is_file() else {}
    sides = [said.get(f"{side}-languages") for side in ("source", "target")]
    codes = [each[0] for each in sides if isinstance(each, list) and len(each) == 1]
    return {"languages": codes} if len(codes) == len(sides) else {}


def _read_items(path: Path) -> Items:
    """Return the arrays of an archive, which is not compressed: no entry is larger than the file."""
    file = foreign.BinaryFile(path)
    items = Items(file)
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("its entries are larger than the file")
            for name in archive.namelist():
                content = io.BytesIO(archive.read(name))
                np.lib.format.read_magic(content)
                shape, by_columns, dtype = np.lib.format.read_array_header_1_0(content)
                data = np.frombuffer(content.getbuffer()[content.tell() :], np.uint8)
                size = math.prod(shape) * dtype.itemsize
                if by_columns or dtype.str not in TYPE_OF or data.size != size or not size:
                    raise ValueError(f"{name!r} {shape} of {dtype} has {data.size:,} bytes")
                items.add(name.removesuffix(".npy"), TYPE_OF[dtype.str], shape, data)
    except DamagedFile:
        raise
    except Exception as error:  # Damaged bytes raise errors of many kinds there.
        raise file.error(f"it is no archive of NumPy that is not compressed ({error})") from None
    return items


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Return the id of each piece, which is that of its line in a file that is no YAML."""
    text = _text(path)
    if path.suffix != ".yml":
        return {piece: i for i, piece in enumerate(text.split("\n"))}
    ids, place = {}, 0
    while place < len(text):
        entry = ENTRY.match(text, place)
        piece = _unquoted(entry[1]) if entry else ""
        if entry is None or piece in ids:
            line = text[place : place + 60].partition("\n")[0]
            raise DamagedFile(f"'{path}' is damaged: {line!r} is no further piece with its id.")
        ids[piece] = int(entry[2])
        place = entry.end() + 1
    return ids


def _text(path: Path) -> str:
    return foreign.read_foreign_text(path).replace("\r\n", "\n").strip("\n")


def _unquoted(piece: str) -> str:
    """Return a piece without YAML's quotes.

    >>> _unquoted('"\\\\"\\\\x85"'), _unquoted("'it''s'"), _unquoted("a:")
    ('"\\x85', "it's", 'a:')
    """
    if piece.startswith("'"):
        return piece[1:-1].replace("''", "'")
    if not piece.startswith('"'):
        return piece

    others = dict(zip("0abtnreNLP_", "\0\a\b\t\n\r\x1b\x85\u2028\u2029\xa0", strict=True))

    def letter(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code else others.get(found[4], found[4])

    return ESCAPED.sub(letter, piece[1:-1])
