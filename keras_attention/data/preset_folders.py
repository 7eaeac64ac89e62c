"""Pretrained models in folders: what one holds is recognised by its files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_attention.data.imported_tokenizers import (
    TOKENIZER_CONFIG,
    ctranslate2_tokenizer,
    firefox_tokenizer,
    hugging_face_tokenizer,
)
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.ctranslate2 import MODEL_FILE
from keras_attention.interop.ctranslate2_reader import read_ctranslate2
from keras_attention.interop.export_folder import TOKENIZER_FOLDER, verify_export
from keras_attention.interop.foreign import POSITIONS, read_foreign_json
from keras_attention.interop.hugging_face import (
    CONFIG_FILE,
    OLD_WEIGHTS,
    SAFE_WEIGHTS,
    WEIGHT_FILES,
    dropouts,
    read_hugging_face,
    search_options,
)
from keras_attention.interop.marian_binary import read_marian
from keras_attention.interop.onnx_model import DECODER_FILE, OnnxModel
from keras_attention.interop.own_preset import (
    CARD,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    is_keras_folder,
    read_manifest,
    read_options,
    read_spec,
)
from keras_attention.spec.parts import as_array
from keras_attention.utils.checks import check_choice, check_path
from keras_attention.utils.files import DamagedFile

EXPECTED = (
    f"a preset of keras_attention ({MANIFEST}, {WEIGHTS} and others), a MarianMT model of Hugging Face "
    f"({CONFIG_FILE}, {SAFE_WEIGHTS} or {OLD_WEIGHTS}, source.spm, target.spm, vocab.json), a CTranslate2 "
    f"model ({MODEL_FILE} and its vocabulary), a model of Firefox (model.*.bin, vocab.*.spm), or ONNX files "
    f"that `export_onnx` wrote ({DECODER_FILE} and others)"
)
SHOWN = 12
# Where Hugging Face's MarianMT and Argos Translate say the languages of a model.
LANGUAGES = {
    TOKENIZER_CONFIG: ("source_lang", "target_lang"),
    "metadata.json": ("from_code", "to_code"),
}
# What is assumed of a model that does not say how it was trained. One that was trained without dropout cannot
# bear it: the perplexity of Firefox' en-pt model on a text rises from 3.7 to 7,900 with a rate of 0.1.
UNSAID = {"dropout": 0.0}


class Preset(NamedTuple):
    """A pretrained model.

    Attributes:
        spec: Its structure and weights, NumPy arrays in float32; or an `OnnxModel`, which has none to read.
        tokenizer: Its tokenizer.
        options: Arguments of `Translator` that it was made with, such as the size of the beam.
        longest_source: Number of tokens of the longest source in its training; None if that is not known.
        model_options: Arguments of `Transformer` that are not in its spec: `dropout` and others, as the model
            was trained. Of one that does not say, `dropout` is 0.
        card: What is known of it: see `model_card`.
    """

    spec: Any
    tokenizer: Any
    options: Mapping[str, Any]
    longest_source: int | None = None
    model_options: Mapping[str, Any] = {}
    card: Mapping[str, Any] = {}

    def fingerprint(self) -> str:
        """Return a checksum of the model and the tokenizer: of what decides translations."""
        digest = hashlib.sha256(json.dumps(self.spec.options(), sort_keys=True).encode())
        for path, weight in self.spec.weights().items():
            digest.update(path.encode())
            digest.update(as_array(weight).tobytes())
        digest.update(self.tokenizer.fingerprint().encode())
        return digest.hexdigest()


def read_folder(folder: str | os.PathLike[str], positions: str = POSITIONS[0]) -> Preset:
    """Read the model, the tokenizer and the search settings of a preset, or of another program's folder.

    Raises:
        DamagedFile: If a file is cut off or changed.
        ValueError: If the folder holds none of these, or a model that cannot be represented.
        ImportError: If a library for one of the files is not installed.
    """
    folder = check_path("folder", folder)
    check_choice("positions", positions, POSITIONS)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder '{folder}'.")
    reader = _reader(folder)
    if reader is None:
        names = sorted(file.name for file in folder.iterdir())
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ValueError(
            f"'{folder}' holds no model that is known: it has {', '.join(names[:SHOWN]) or 'no file'}{more}. "
            f"Expected: {EXPECTED}."
        )
    found = reader(folder, positions)
    return found if found.card else found._replace(card=_said_languages(folder))


def _said_languages(folder: Path) -> dict[str, Any]:
    """Return the languages that another program's files say, as codes of two letters; {} if they do not."""
    said = [
        "".join(re.findall(r"^model\.([a-z]{4})\.", file.name)) for file in _marian_files(folder)
    ]
    pairs = [(name[:2], name[2:]) for name in said]
    for file, names in LANGUAGES.items():
        # A file that is no object says nothing, which nothing needs.
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            known = read_foreign_json(folder / file, dict)
            pairs.append((known.get(names[0]), known.get(names[1])))
    codes = [pair for pair in pairs if all(re.fullmatch("[a-z]{2}", str(code)) for code in pair)]
    return {"languages": [*codes[0]]} if codes else {}


def is_foreign(folder: Path) -> bool:
    """Whether a folder looks like a model of another program, or like a preset."""
    return folder.is_dir() and _reader(folder) is not None


def _reader(folder: Path) -> Callable[[Path, str], Preset] | None:
    if (folder / MODEL_FILE).is_file() or (folder / "model" / MODEL_FILE).is_file():
        return _from_ctranslate2
    has_weights = any((folder / name).is_file() for name in WEIGHT_FILES)
    if has_weights and (folder / CONFIG_FILE).is_file():
        return _from_hugging_face
    if (folder / DECODER_FILE).is_file():
        return _from_onnx
    if (folder / MANIFEST).is_file():  # Our exports, which have one too, are models of others.
        return _from_own
    if is_keras_folder(folder):
        return _refuse_keras_folder
    if (folder / CONFIG_FILE).is_file() and b'"model_type"' in (folder / CONFIG_FILE).read_bytes():
        return _from_hugging_face  # which says that weights are missing
    return _from_firefox if _marian_files(folder) else None


def _from_own(folder: Path, positions: str) -> Preset:
    if positions != POSITIONS[0]:
        raise ValueError(f"'{folder}' is a preset of ours, whose `positions` are 'as_trained'.")
    manifest = read_manifest(folder)
    return Preset(
        read_spec(folder, manifest),
        Tokenizer.load(folder / TOKENIZER),
        *read_options(folder, manifest),
        {**UNSAID, **manifest["model_options"]},
        read_foreign_json(folder / CARD, dict),
    )


def _refuse_keras_folder(folder: Path, positions: str) -> Preset:
    raise ValueError(
        f"'{folder}' is a model of Keras or a preset of KerasHub, and has no {MANIFEST}, which "
        "`Translator.save_to_preset` writes. Load it with `keras.saving.load_model`, or with KerasHub."
    )


def _from_hugging_face(folder: Path, positions: str) -> Preset:
    _verify_own(folder, "hugging_face")
    spec = read_hugging_face(folder, positions)
    tokenizer, options = hugging_face_tokenizer(folder, spec), search_options(folder)
    return Preset(spec, tokenizer, options, None, {**UNSAID, **dropouts(folder)})


def _from_ctranslate2(folder: Path, positions: str) -> Preset:
    # A package of Argos Translate has the model in a folder of this name.
    folder = folder if (folder / MODEL_FILE).is_file() else folder / "model"
    _verify_own(folder, "ctranslate2")
    model = read_ctranslate2(folder, positions)
    return Preset(model.spec, ctranslate2_tokenizer(folder, model), {}, None, UNSAID)


def _from_onnx(folder: Path, positions: str) -> Preset:
    if positions != POSITIONS[0]:
        raise ValueError(f"'{folder}' holds ONNX files, whose `positions` are 'as_trained'.")
    verify_export(folder, "onnx")  # Graphs are programs: those of others are not run.
    model = OnnxModel(folder)
    return Preset(model, Tokenizer.load(folder / TOKENIZER_FOLDER), {"beam_size": model.beam_size})


def _from_firefox(folder: Path, positions: str) -> Preset:
    if positions != POSITIONS[0]:
        raise ValueError(f"'{folder}' holds a model of Marian, whose `positions` are 'as_trained'.")
    path = _one(folder, _marian_files(folder))
    spec = read_marian(path)
    sides = [sorted(folder.glob(f"{name}*.spm")) for name in ("srcvocab.", "trgvocab.", "vocab.")]
    has_both = bool(sides[0] and sides[1])
    files = [_one(folder, side) for side in (sides[:2] if has_both else sides[2:])]
    return Preset(spec, firefox_tokenizer(spec, files), {}, None, UNSAID)


def _verify_own(folder: Path, kind: str) -> None:
    """Compare the files of a folder with the checksums that an export of ours has."""
    if (folder / MANIFEST).is_file():
        verify_export(folder, kind)


def _marian_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("model.*.bin"))


def _one(folder: Path, files: Sequence[Path]) -> Path:
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ValueError(
            f"'{folder}' must hold one model.*.bin, and one vocab.*.spm or srcvocab.*.spm and "
            f"trgvocab.*.spm. Found: {names}"
        )
    return files[0]
