"""The formats of other programs in which `Translator.export` writes a model and its tokenizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from keras_attention.decoding.saved_model import export_saved_model
from keras_attention.interop.ctranslate2 import export_ctranslate2
from keras_attention.interop.hugging_face_export import export_hugging_face
from keras_attention.interop.onnx_export import export_onnx
from keras_attention.utils.checks import check_choice

# Each takes the model, the tokenizer and the folder, and options of its own.
FORMATS: dict[str, Callable[..., Path]] = {
    "ctranslate2": export_ctranslate2,
    "hugging_face": export_hugging_face,
    "onnx": export_onnx,
    "saved_model": export_saved_model,
}


def options_of(format: str) -> list[str]:
    """Return the names of a format's own options.

    Raises:
        ValueError: If there is no such format.

    Example:

    >>> options_of("hugging_face")
    ['beam_size', 'max_length', 'overwrite']
    """
    check_choice("format", format, tuple(FORMATS))
    parameters = inspect.signature(FORMATS[format]).parameters
    return [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
