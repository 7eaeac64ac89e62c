"""ONNX files that `export_onnx` wrote."""

from __future__ import annotations

from pathlib import Path

from keras_attention.data.formats.common import Format, Loaded, card_of_export
from keras_attention.data.tokenizer import Tokenizer
from keras_attention.interop.export_folder import TOKENIZER_FOLDER
from keras_attention.interop.onnx_model import DECODER_FILE, OnnxModel


def sniff(folder: Path) -> bool:
    """Whether a folder has a decoder."""
    return (folder / DECODER_FILE).is_file()


def read(folder: Path) -> Loaded:
    """Open a folder; onnxruntime runs its files."""
    card = card_of_export(folder, FORMAT.name)  # Graphs are programs: those of others are not run.
    model = OnnxModel(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER_FOLDER)
    return Loaded(model, tokenizer, {"beam_size": model.beam_size}, card=card)


FORMAT = Format(
    "onnx",
    f"ONNX files that `export_onnx` wrote ({DECODER_FILE} and others)",
    sniff,
    read,
)
