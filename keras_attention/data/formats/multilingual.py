"""Tokenizers of M2M-100, NLLB-200 and mBART-50, in whose texts the languages are named by codes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_attention.data.formats.pieces import (
    UNKNOWN,
    arranged,
    fits,
    id_of,
    imported_tokenizer,
    pieces_of,
    read_model,
    usual_pieces,
)
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.foreign import Settings, read_foreign_json
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.lazily import needed

# A language in the vocabulary of M2M-100, which users name without the lines, of NLLB-200, and of mBART-50,
# whose vocabulary has English.
CODE = re.compile("__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})|([a-z]{2}_[A-Z]{2})")
ENGLISH_OF_MBART = "en_XX"
SENTENCE_PIECES, VOCABULARY, WHOLE = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
TOKENIZER_CONFIG, ADDED = "tokenizer_config.json", "added_tokens.json"
SPECIAL = "special_tokens_map.json"
MBART_CLASSES = ("MBart50Tokenizer", "MBart50TokenizerFast")
CLASSES = ("M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast", *MBART_CLASSES)
# The first tokens of NLLB and mBART. Behind them come the pieces of SentencePiece, but for its first three.
FIRST = ("<s>", "<pad>", "</s>", UNKNOWN)


def languages_of(pieces: Iterable[str]) -> dict[str, int]:
    """Return the id of each language whose code is among the pieces.

    >>> languages_of(["</s>", "__en__", "deu_Latn", "deu"])
    {'en': 1, 'deu_Latn': 2}
    """
    found = [(code, i) for i, piece in enumerate(pieces) if (code := CODE.fullmatch(piece))]
    is_mbart = any(code[0] == ENGLISH_OF_MBART for code, _ in found)
    return {code[code.lastindex or 0]: i for code, i in found if is_mbart or not code[3]}


def ends_with_language(folder: Path) -> bool:
    """Whether sources end with the code of their language, as in NLLB's first releases."""
    return _settings(folder / TOKENIZER_CONFIG).get("legacy_behaviour", bool, False)


def multilingual_tokenizer(folder: Path, spec: TransformerSpec) -> Tokenizer:
    """Return the tokenizer of an M2M-100, NLLB-200 or mBART-50 folder of Hugging Face, with their ids.

    Raises:
        ValueError: If it is another program's, or a file is missing.
    """
    config = _settings(folder / TOKENIZER_CONFIG)
    if (name := config.get("tokenizer_class", str, CLASSES[0])) not in CLASSES:
        raise ValueError(
            f"'{config.path}': the tokenizer {name!r} is not read; read are {', '.join(CLASSES)}."
        )
    whole = folder / WHOLE
    content = _settings(whole) if whole.is_file() else None
    if (folder / SENTENCE_PIECES).is_file() or content is None:
        model = read_model(folder / SENTENCE_PIECES)
    else:
        model = _model_of(content)
    if (folder / VOCABULARY).is_file():
        ids = read_foreign_json(folder / VOCABULARY, dict)
    elif content is not None:
        vocabulary = content.get("model", dict).get("vocab")
        if isinstance(vocabulary, list):  # of pieces and their scores
            vocabulary = {str(each[0]): i for i, each in enumerate(vocabulary) if each}
        ids = Settings({"vocab": vocabulary}, whole).get("vocab", dict)
    else:
        ids = {piece: i for i, piece in enumerate([*FIRST, *pieces_of(model)[3:]])}
    ids |= _added(folder, content, ids)
    place = folder / (WHOLE if content is not None else VOCABULARY)
    pieces = arranged(ids, spec.vocabulary_size, place)
    special = [pieces[i] for i in (spec.pad_token_id, spec.end_token_id)]
    languages = languages_of(pieces)
    if not languages or special != [FIRST[1], FIRST[2]]:
        raise ValueError(
            f"'{folder}' has no codes of languages, or no <pad> and </s> where the model has them. Expected: "
            f"codes such as __en__ or eng_Latn in {WHOLE}, {SPECIAL}, {ADDED} or {TOKENIZER_CONFIG}, as the "
            "model's authors wrote them."
        )
    if ENGLISH_OF_MBART in languages and name not in MBART_CLASSES:
        raise ValueError(
            f"'{config.path}' must name the tokenizer, one of {', '.join(MBART_CLASSES)}: mBART-25 has the "
            "same codes, and is not read, as its translations begin with them alone."
        )
    if not fits(usual_pieces(model), {*pieces}):
        raise ValueError(f"'{folder / SENTENCE_PIECES}' is another model's: {place.name} differs.")
    unknown = [id_of(pieces, UNKNOWN, place)]
    ends_source = not ends_with_language(folder)
    return imported_tokenizer(
        *([pieces], [model, model], spec, unknown), ends_source=ends_source, languages=languages
    )


def _settings(path: Path) -> Settings:
    """Return the settings of a file; none if it is missing."""
    return Settings(read_foreign_json(path, dict) if path.is_file() else {}, path)


def _added(folder: Path, content: Settings | None, known: Mapping[str, int]) -> dict[str, Any]:
    """Return the ids of tokens behind the known ones: as files say them, else in the order of a list."""
    config = _settings(folder / TOKENIZER_CONFIG)
    lists = (
        each.get(name, list, [])
        for each in (_settings(folder / SPECIAL), config)
        for name in ("additional_special_tokens", "extra_special_tokens")
    )
    listed = dict.fromkeys(map(_content, next(filter(None, lists), [])))
    new = (token for token in listed if token not in known)
    found: dict[str, Any] = {token: len(known) + i for i, token in enumerate(new)}
    found |= _settings(folder / ADDED).values
    for number, token in config.get("added_tokens_decoder", dict, {}).items():
        found[_content(token)] = int(number) if number.isdecimal() else number
    for token in [] if content is None else content.get("added_tokens", list, []):
        found[_content(token)] = token.get("id") if isinstance(token, Mapping) else None
    return found


def _content(token: Any) -> str:
    """Return the text of a token, which may be an object."""
    return str(token.get("content")) if isinstance(token, Mapping) else str(token)


def _model_of(content: Settings) -> bytes:
    """Return the SentencePiece model from which transformers made a `tokenizer.json`."""
    message = (
        f"'{content.path}' becomes a SentencePiece model by protobuf: pip install 'protobuf>=5'"
    )
    messages: Any = needed("sentencepiece.sentencepiece_model_pb2", message)
    model = Settings(content.get("model", dict), content.path)
    vocabulary, merges = model.get("vocab", dict), model.get("merges", list)
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    try:
        order = [vocabulary["".join(pair)] for pair in pairs]
        steps = content.get("normalizer", dict)["normalizers"]
        charsmap = base64.b64decode(steps[0]["precompiled_charsmap"], validate=True)
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)[len(FIRST) :]
    except (KeyError, TypeError, IndexError, binascii.Error) as error:
        raise DamagedFile(
            f"'{content.path}' is damaged, or no tokenizer of NLLB: {type(error).__name__} {error}. Put "
            f"{SENTENCE_PIECES} beside it."
        ) from None
    if model.get("type", str) != "BPE" or order != sorted(order):
        raise ValueError(
            f"'{content.path}' is not made of a SentencePiece model of BPE. Put {SENTENCE_PIECES} beside it."
        )
    proto = messages.ModelProto()
    proto.trainer_spec.model_type = 2  # BPE
    proto.normalizer_spec.precompiled_charsmap = charsmap
    for piece, kind in ((UNKNOWN, 2), ("<s>", 3), ("</s>", 3)):
        proto.pieces.add(piece=piece, score=0.0, type=kind)
    for place, piece in enumerate(pieces):
        proto.pieces.add(piece=piece, score=-float(place), type=1)
    return proto.SerializeToString()
