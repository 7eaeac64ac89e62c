"""`keras-attention preset MODEL FOLDER`: a model as a preset, with a card; or check one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_attention.cli.decoding_options import add_language_options
from keras_attention.cli.models import MODEL_HELP, check_model, light_translator
from keras_attention.cli.options import Parser, adding, flag, given
from keras_attention.cli.quiet import start_backend
from keras_attention.data.formats.own_preset import PRESET
from keras_attention.utils.checks import counted
from keras_attention.utils.progress import activity
from keras_attention.utils.sides import LANGUAGES

EXAMPLE = """
examples:
  keras-attention preset runs/demo presets/demo --license cc0-1.0 --float16
  keras-attention preset --verify presets/demo
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Write a preset, or check one."""
    parser = Parser(
        prog=program,
        usage=f"{program} MODEL FOLDER [options]\n       {program} --verify MODEL",
        description="Write a model, its tokenizer and its search settings as a preset: a folder that "
        "Keras, KerasHub and this package read, with a card made from the run. Or check a preset: the "
        "checksums of its files, and that it still translates its sample as it did.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    add("FOLDER", "the new folder", Path, nargs="?")
    add("--verify", "check MODEL, a preset; nothing is written")
    add("--license NAME", "licence of the model, for its card, such as cc0-1.0")
    add("--text-license TEXT", "licence of the text that it was trained on")
    add("--description TEXT", "what the card begins with")
    add("--card FILE", "a JSON object with further entries of the card", Path)
    add_language_options(add)
    add("--float16", "store matrices in half the space, rounded")
    add("--overwrite", "replace an unchanged preset in FOLDER")
    options = parser.parse_args(arguments)
    if options.verify:
        known = {"model": "MODEL", "folder": "FOLDER", "verify": "--verify"}
        named = [known.get(k, flag(k)) for k, v in vars(options).items() if v not in (None, False)]
        if len(named) > 2:
            parser.error(f"--verify takes MODEL alone. Received: {' '.join(named)}")
        _verify(options.model)
        return
    if options.folder is None:
        parser.error("the following arguments are required: FOLDER")
    PRESET.check_destination(options.folder, options.overwrite, option="--overwrite")
    card = {} if options.card is None else _read_card(options.card)
    card |= given(options, ("license", "text_license", "description"))
    languages = given(options, LANGUAGES)
    check_model(options.model, **languages)
    start_backend()
    translator = light_translator(options.model, **languages)
    with activity("writing the preset"):
        path = translator.save_to_preset(
            options.folder,
            card=card,
            weights_dtype="float16" if options.float16 else "float32",
            overwrite=options.overwrite,
        )
    print(f"The preset is in {path}. Its card: {path / 'README.md'}")


def _verify(preset: str) -> None:
    start_backend()
    from keras_attention.decoding.verified_preset import verify_preset

    with activity("checking the preset"):
        found = verify_preset(preset)
    print(
        f"{counted(found.files, 'file')} unchanged; {counted(found.sentences, 'sentence')} translated as "
        f"before by {', '.join(found.engines)}."
    )


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"--card: '{path}' is no JSON: {error}") from None
    if not isinstance(card, dict):
        raise ValueError(f"--card: '{path}' must hold a JSON object. Received: {card!r:.60}")
    return card
