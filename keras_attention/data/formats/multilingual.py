"""Tokenizers of M2M-100, NLLB-200 and mBART, whose sources and translations name their languages by codes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_attention.data.formats import common
from keras_attention.data.sentence_pieces import opened
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.foreign import Settings, read_foreign_json
from keras_attention.interop.hugging_face import CONFIG_FILE
from keras_attention.spec.transformer import TransformerSpec
from keras_attention.utils.files import DamagedFile
from keras_attention.utils.lazily import needed

# A language in the vocabulary of M2M-100, which users name without the lines, of NLLB-200, and of mBART,
# whose vocabulary has English.
CODE = re.compile("__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})|([a-z]{2}_[A-Z]{2})")
ENGLISH_OF_MBART = "en_XX"
SENTENCE_PIECES, VOCABULARY, WHOLE = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
TOKENIZER_CONFIG, ADDED = "tokenizer_config.json", "added_tokens.json"
SPECIAL = "special_tokens_map.json"
UNIGRAM = "Unigram"  # the kind of mBART's pieces
MBART, MBART50 = "MBartTokenizer", "MBart50Tokenizer"
CLASSES = ("M2M100Tokenizer", "NllbTokenizer", MBART, MBART50)
# The first tokens of NLLB and mBART. Behind them come the pieces of the SentencePiece model, but for its
# first three; and in mBART these languages, the first 25 alone in mBART-25.
FIRST = ("<s>", "<pad>", "</s>", common.UNKNOWN)
MBART_CODES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM "
    "ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH "
    "mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES "
    "sl_SI"
)


def languages_of(pieces: Iterable[str]) -> dict[str, int]:
    """Return the id of each language whose code is among the pieces.

    >>> languages_of(["</s>", "__en__", "deu_Latn", "deu", "de_DE"])
    {'en': 1, 'deu_Latn': 2}
    >>> languages_of(["</s>", "en_XX", "de_DE"])
    {'en_XX': 1, 'de_DE': 2}
    """
    found = [(code, i) for i, piece in enumerate(pieces) if (code := CODE.fullmatch(piece))]
    is_mbart = any(code[0] == ENGLISH_OF_MBART for code, _ in found)
    return {code[code.lastindex or 0]: i for code, i in found if is_mbart or not code[3]}


def ends_with_language(folder: Path, starts_with_language: bool) -> bool:
    """Whether sources end with the code of their language, as in NLLB's first releases and mBART-25.

    mBART-25 is known by its start token, which is the code of the translation's language.
    """
    config = Settings.of_file(folder / TOKENIZER_CONFIG)
    is_second = config.get("tokenizer_class", str, "").startswith(MBART50)
    is_legacy = config.get("legacy_behaviour", bool, False)
    return is_legacy or (starts_with_language and not is_second)


def _class_of(folder: Path) -> str:
    """Return the class that the tokenizer of a folder has in transformers."""
    config, model = (Settings.of_file(folder / name) for name in (TOKENIZER_CONFIG, CONFIG_FILE))
    usual = MBART if model.values.get("model_type") == "mbart" else CLASSES[0]
    usual = model.get("tokenizer_class", str, usual)
    name = config.get("tokenizer_class", str, usual).removesuffix("Fast")
    if name not in CLASSES:
        raise ValueError(
            f"'{config.path}': the tokenizer {name!r} is not read; read are {', '.join(CLASSES)}."
        )
    return name


def multilingual_tokenizer(folder: Path, spec: TransformerSpec) -> Tokenizer:
    """Return the tokenizer of an M2M-100, NLLB-200 or mBART folder of Hugging Face, with their ids."""
    name = _class_of(folder)
    whole = folder / WHOLE
    content = Settings.of_file(whole) if whole.is_file() else None
    if (folder / SENTENCE_PIECES).is_file() or content is None:
        model = common.read_model(folder / SENTENCE_PIECES)
    else:
        model = _model_of(content)
    if (folder / VOCABULARY).is_file():
        ids = read_foreign_json(folder / VOCABULARY, dict)
    elif content is not None:
        ids = _ids_of(content)
    else:
        codes = {MBART: MBART_CODES.split()[:25], MBART50: MBART_CODES.split()}.get(name, [])
        ids = [*FIRST, *opened(model)[1][3:], *codes, *(["<mask>"] if codes else [])]
        ids = {piece: i for i, piece in enumerate(ids)}
    ids |= _added(folder, content, ids)
    place = folder / (WHOLE if content is not None else VOCABULARY)
    pieces = common.arranged(ids, spec.vocabulary_size, place)
    special = [pieces[i] for i in (spec.pad_token_id, spec.end_token_id)]
    languages = languages_of(pieces)
    if not languages or special != [FIRST[1], FIRST[2]]:
        raise ValueError(
            f"'{folder}' has no codes of languages, or no <pad> and </s> where the model has them. Expected: "
            f"codes such as __en__ or eng_Latn in {WHOLE}, {SPECIAL}, {ADDED} or {TOKENIZER_CONFIG}, as the "
            "model's authors wrote them."
        )
    if not common.fits(common.usual_pieces(model), {*pieces}):
        raise ValueError(f"'{folder / SENTENCE_PIECES}' is another model's: {place.name} differs.")
    unknown = [common.id_of(pieces, common.UNKNOWN, place)]
    starts_with_language = spec.start_token_id in languages.values()
    if name == MBART and not starts_with_language:
        raise ValueError(
            f"'{folder}' has a model of mBART-25, whose translations begin with the code of "
            f"their language: decoder_start_token_id in its {CONFIG_FILE} must be the id of one. Received: "
            f"{spec.start_token_id}. (A model that was trained no further translates nothing.)"
        )
    ends_source = not ends_with_language(folder, starts_with_language)
    return common.imported_tokenizer(
        *([pieces], [model, model], spec, unknown), ends_source=ends_source, languages=languages
    )


def _added(folder: Path, content: Settings | None, known: Mapping[str, int]) -> dict[str, Any]:
    """Return the ids of tokens behind the known ones: as files say them, else in the order of a list."""
    config = Settings.of_file(folder / TOKENIZER_CONFIG)
    lists = (
        each.get(name, list, [])
        for each in (Settings.of_file(folder / SPECIAL), config)
        for name in ("additional_special_tokens", "extra_special_tokens")
    )
    listed = dict.fromkeys(map(_content, next(filter(None, lists), [])))
    new = (token for token in listed if token not in known)
    found: dict[str, Any] = {token: len(known) + i for i, token in enumerate(new)}
    found |= Settings.of_file(folder / ADDED).values
    for number, token in config.get("added_tokens_decoder", dict, {}).items():
        found[_content(token)] = int(number) if number.isdecimal() else number
    for token in [] if content is None else content.get("added_tokens", list, []):
        found[_content(token)] = token.get("id") if isinstance(token, Mapping) else None
    return found


def _content(token: Any) -> str:
    """Return the text of a token, which may be an object."""
    return str(token.get("content")) if isinstance(token, Mapping) else str(token)


def _ids_of(content: Settings) -> dict[str, Any]:
    """Return the id of each piece of a `tokenizer.json`."""
    model = Settings(content.get("model", dict), content.path)
    if model.values.get("type") != UNIGRAM:
        return model.get("vocab", dict)
    return {piece: i for i, piece in enumerate(_scores_of(model))}


def _scores_of(model: Settings) -> dict[str, float]:
    """Return the score of each piece of a unigram model."""
    try:
        return {str(piece): float(score) for piece, score in model.get("vocab", list)}
    except (TypeError, ValueError) as error:
        raise DamagedFile(
            f"'{model.path}' is damaged: its vocabulary has no pieces with scores ({error})."
        ) from None


def _model_of(content: Settings) -> bytes:
    """Return the SentencePiece model from which transformers made a `tokenizer.json`."""
    message = (
        f"'{content.path}' becomes a SentencePiece model by protobuf: pip install 'protobuf>=5'"
    )
    messages: Any = needed("sentencepiece.sentencepiece_model_pb2", message)
    model = Settings(content.get("model", dict), content.path)
    is_unigram, ids = model.values.get("type") == UNIGRAM, _ids_of(content)
    merges = [] if is_unigram else model.get("merges", list)
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    try:
        order = [ids["".join(pair)] for pair in pairs]
        charsmap = b""
        if not is_unigram or content.values.get("normalizer") is not None:
            steps = content.get("normalizer", dict)["normalizers"]
            charsmap = base64.b64decode(steps[0]["precompiled_charsmap"], validate=True)
        pieces = sorted(ids, key=ids.__getitem__)[len(FIRST) :]
    except (KeyError, TypeError, IndexError, binascii.Error) as error:
        raise DamagedFile(
            f"'{content.path}' is damaged, or no tokenizer of NLLB: {type(error).__name__} {error}. Put "
            f"{SENTENCE_PIECES} beside it."
        ) from None
    if model.get("type", str) not in (UNIGRAM, "BPE") or order != sorted(order):
        raise ValueError(
            f"'{content.path}' is not made of a SentencePiece model of BPE or of unigrams. Put "
            f"{SENTENCE_PIECES} beside it."
        )
    scores = {piece: -float(place) for place, piece in enumerate(pieces)}
    if is_unigram:
        special = {*map(_content, content.get("added_tokens", list, []))}
        scores = {
            piece: score for piece, score in _scores_of(model).items() if piece not in special
        }
    proto = messages.ModelProto()
    proto.trainer_spec.model_type = 1 if is_unigram else 2  # BPE
    proto.normalizer_spec.precompiled_charsmap = charsmap
    for piece, kind in ((common.UNKNOWN, 2), ("<s>", 3), ("</s>", 3)):
        proto.pieces.add(piece=piece, score=0.0, type=kind)
    for piece, score in scores.items():
        proto.pieces.add(piece=piece, score=score, type=1)
    return proto.SerializeToString()
