"""`keras-attention export MODEL FOLDER --format FORMAT`: a model for other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from annotated_types import Ge

from keras_attention.cli.decoding_options import add_language_options
from keras_attention.cli.models import MODEL_HELP, check_model, light_translator
from keras_attention.cli.options import Parser, adding, given
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.streams import FAILURE
from keras_attention.data.normalization import normalize
from keras_attention.data.text_files import read_lines
from keras_attention.decoding.pretrained import FORMATS
from keras_attention.interop.ctranslate2 import Quantization
from keras_attention.interop.export_folder import EXPORT
from keras_attention.utils.arguments import BeamSize, LengthPenalty
from keras_attention.utils.progress import say, show
from keras_attention.utils.run_folder import SEARCH_SETTINGS
from keras_attention.utils.sides import LANGUAGES

DESCRIPTION = """Write a model, its tokenizer and its search settings for other programs: for CTranslate2,
as a MarianMT or Pegasus folder of Hugging Face, as ONNX files, or as a SavedModel of TensorFlow.

With --check, this package and the program that the format is for, if it is installed, translate some
sentences from the export: a file's, or the examples in the model's card. The exit code is 1 if a translation
is not the model's. Without --format, an export that was written earlier is checked.
"""
EXAMPLE = """
examples:
  keras-attention export runs/demo demo_marian --format hugging_face
  keras-attention export runs/demo demo_ct2 --format ctranslate2 --quantization int8
  keras-attention export runs/demo demo_onnx --format onnx --check
  keras-attention export runs/demo demo_tf/1 --format saved_model
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Write a model for another program, and compare its translations."""
    parser = _parser(program)
    options = parser.parse_args(arguments)
    wanted = given(options, ("quantization", "max_length"))
    if options.format is None and (wanted or options.overwrite or options.check is None):
        parser.error("--format is missing, which says what to write")
    if options.format is not None:
        EXPORT.check_destination(options.folder, options.overwrite, option="--overwrite")
    texts = _check_texts(options)
    if options.format is None:
        from keras_attention.recipes.export_check import programs_of

        programs_of(options.folder)
    is_tensorflow = options.format == "saved_model"
    if is_tensorflow:  # It writes the models of all backends.
        if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
            say(f"{program}: a SavedModel is written on TensorFlow, whatever KERAS_BACKEND says.")
        os.environ["KERAS_BACKEND"] = "tensorflow"
    search = {**given(options, (*SEARCH_SETTINGS, *LANGUAGES)), "show_progress": False}
    check_model(options.model, options.checkpoint, **given(options, LANGUAGES))
    translator = light_translator(options.model, options.checkpoint, **search)
    if is_tensorflow:
        start_backend()
    if options.format is not None:
        path = translator.export(
            options.folder, options.format, overwrite=options.overwrite, **wanted
        )
        print(f"The model is in {path}", flush=True)
    if options.check is None:
        return
    from keras_attention.recipes.export_check import check_export

    found = check_export(translator, options.folder, texts)
    show(str(found))
    if not found.passed:
        raise SystemExit(FAILURE)


def _parser(program: str) -> Parser:
    parser = Parser(prog=program, description=DESCRIPTION, epilog=EXAMPLE)
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    add("FOLDER", "a new folder; to check alone, that of an export", Path)
    add("--format", "the other program's format", choices=list(FORMATS))
    precision = "precision of CTranslate2's weights (as they are)"
    add("--quantization", precision, choices=get_args(Quantization))
    add("--max-length N", "number of positions (the format's usual one)", Annotated[int, Ge(2)])
    add("--beam-size N", "hypotheses kept, as the export says (the model's)", BeamSize)
    add("--length-penalty X", "the paper's alpha, as the export says (the model's)", LengthPenalty)
    add_language_options(add)
    add("--checkpoint NAME", "a checkpoint of a run, as in `translate` (the finished model)")
    add("--overwrite", "replace what this command wrote to FOLDER")
    check = "compare translations of these sentences, one a line (the examples in the model's card)"
    add("--check FILE", check, Path, nargs="?", const=True)
    return parser


def _check_texts(options: Any) -> list[str] | None:
    """Return the sentences of a file, before there is a folder; None if none is named."""
    if options.check in (None, True):
        return None
    texts = list(read_lines(options.check))
    if not any(map(normalize, texts)):
        raise ValueError(f"'{options.check}' holds no sentence.")
    return texts
