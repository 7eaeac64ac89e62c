"""`keras-attention export MODEL FOLDER --format FORMAT`: a model for other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.models import MODEL_HELP, light_translator
from keras_attention.cli.options import Parser
from keras_attention.cli.quiet import start_backend
from keras_attention.decoding.exports import FORMATS, options_of
from keras_attention.interop.ctranslate2 import QUANTIZATIONS
from keras_attention.utils.checks import check_integer

EXAMPLE = """
examples:
  keras-attention export runs/demo demo_marian --format hugging_face
  keras-attention export runs/demo demo_ct2 --format ctranslate2 --quantization int8
  keras-attention export runs/demo demo_tf/1 --format saved_model
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Write a model for another program."""
    parser = Parser(
        prog=program,
        description="Write a model, its tokenizer and its search settings for other programs: for "
        "CTranslate2, as a MarianMT or Pegasus folder of Hugging Face, or as a SavedModel of TensorFlow.",
        epilog=EXAMPLE,
    )
    add: Any = parser.add_argument
    add("model", metavar="MODEL", help=MODEL_HELP)
    add("folder", type=Path, metavar="FOLDER", help="a new folder")
    add("--format", required=True, choices=list(FORMATS), help="the other program's format")
    add(
        "--quantization",
        choices=QUANTIZATIONS,
        help="precision of CTranslate2's weights (as they are)",
    )
    add("--max-length", type=int, metavar="N", help="number of positions (the format's usual one)")
    add("--overwrite", action="store_true", help="replace what this command wrote to FOLDER")
    options = parser.parse_args(arguments)
    if options.max_length is not None:
        check_integer("--max-length", options.max_length, 2)
    wanted = {"quantization": options.quantization, "max_length": options.max_length}
    given = {name: value for name, value in wanted.items() if value is not None}
    for name in given:
        if name not in options_of(options.format):
            raise ValueError(f"--{name.replace('_', '-')} is not for --format {options.format}.")
    is_tensorflow = options.format == "saved_model"
    if is_tensorflow:  # It writes the models of all backends.
        os.environ["KERAS_BACKEND"] = "tensorflow"
    translator = light_translator(options.model, show_progress=False)
    if is_tensorflow:
        start_backend()
    path = translator.export(options.folder, options.format, overwrite=options.overwrite, **given)
    print(f"The model is in {path}")
