"""`keras-attention attention MODEL SENTENCE`: where a model looks, in a browser or as pictures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from keras_attention.cli.decoding_options import add_language_options
from keras_attention.cli.models import (
    MODEL_HELP,
    check_model,
    is_run,
    keras_translator,
    name_of,
    say_missing_heads,
)
from keras_attention.cli.options import Parser, adding, given
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.serve import (
    add_address_options,
    check_address,
    run_server,
    say_engines,
    served_translator,
)
from keras_attention.cli.streams import typed_text
from keras_attention.data.model_card import UNNAMED, languages_of
from keras_attention.data.normalization import normalize
from keras_attention.utils.files import atomic_folder, check_destination
from keras_attention.utils.sides import LANGUAGES, piece_of
from keras_attention_viewer.page import is_page as is_viewer_page

PAGE = ".html"
DEFAULT = Path(f"attention{PAGE}")
# Of a sentence that one types on the page.
MOST_CHARACTERS = 1_000
# Each picture names its maker, so that a folder of them may be replaced, and no other.
MAKER = "keras-attention attention"
EXAMPLE = """
examples:
  keras-attention attention runs/demo "The dog sleeps."
  keras-attention attention runs/demo "The dog sleeps." "Der Hund schläft." --output pictures
  keras-attention attention runs/demo "The dog sleeps." --serve
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Show the attention of a sentence and its translation."""
    options = _parser(program).parse_args(arguments)
    if options.sentence is not None and not normalize(options.sentence):
        raise ValueError("SENTENCE must not be empty.")
    _check_together(options)
    check_address(options)
    if options.serve:
        check_model(options.model, **given(options, LANGUAGES))
        _serve(program, options)
    else:
        _save(program, options)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="Show the attention of every layer and head for a sentence and its translation: as a "
        "self-contained web page, or as pictures, one for each layer of the encoder, of the decoder, "
        "and of the cross-attention; or, with --serve, on a page where one changes the sentence, switches "
        "heads off and says how the translation begins.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", MODEL_HELP)
    sentence = "a sentence in the source language; with --serve it may be left out"
    add("SENTENCE", sentence, typed_text, nargs="?")
    add("TRANSLATION", "its translation (the model's own)", typed_text, nargs="?")
    add(
        "--output PATH",
        f"a new page, ending in {PAGE}, or a new folder for pictures ({DEFAULT}, which replaces an "
        "earlier one)",
        Path,
    )
    add("--overwrite", "replace the page or the pictures that this command wrote to PATH")
    add("--serve", "write nothing, but serve a page to try the model, until Ctrl-C or SIGTERM")
    add_language_options(add)
    add_address_options(parser)
    return parser


def _check_together(options: argparse.Namespace) -> None:
    """Refuse options that go without --serve, or only with it."""
    given = {
        "TRANSLATION": options.translation is not None,
        "--output": options.output is not None,
        "--overwrite": options.overwrite,
        "--host": options.host is not None,
        "--port": options.port is not None,
        "--allow-host": bool(options.allow_host),
    }
    needed = ("--host", "--port", "--allow-host")
    wrong = [name for name in given if given[name] and (name in needed) != options.serve]
    if wrong:
        rule = "cannot be used with" if options.serve else "needs"
        raise ValueError(f"{wrong[0]} {rule} --serve.")
    if options.sentence is None and not options.serve:
        raise ValueError("SENTENCE is missing. Give one, or --serve to type it on a page.")
    if options.serve and len(options.sentence or "") > MOST_CHARACTERS:
        raise ValueError(
            f"SENTENCE must have at most {MOST_CHARACTERS:,} characters with --serve. "
            f"Received: {len(options.sentence):,}"
        )


def _serve(program: str, options: argparse.Namespace) -> None:
    languages = given(options, LANGUAGES)

    def service() -> Any:
        from keras_attention.serving.app import Service
        from keras_attention.serving.fields import Limits
        from keras_attention.serving.models import paired

        start_backend()
        translator = served_translator(options.model, **languages)
        named = dict(zip(LANGUAGES, languages_of(translator.card) or UNNAMED, strict=True))
        pair = tuple({**named, **languages}.values())
        is_many = bool(translator.tokenizer.languages)
        models = paired([options.model], [translator], None if is_many else [pair])
        say_engines(program, models)
        return Service(models, Limits(characters=MOST_CHARACTERS), start_backend)

    chosen = {name.removesuffix("_language"): code for name, code in languages.items()}
    chosen |= {} if options.sentence is None else {"q": options.sentence}
    run_server(program, options, service, page=f"/?{urlencode(chosen)}" if chosen else "")


def _save(program: str, options: argparse.Namespace) -> None:
    # Nobody has named the default page.
    output, overwrite = options.output or DEFAULT, options.overwrite or options.output is None
    is_page = output.suffix.lower() == PAGE
    if not is_page and output.suffix:
        raise ValueError(
            f"--output must end in {PAGE}, or be a new folder, whose name has no ending. Received: "
            f"{output}"
        )
    check_destination(
        output,
        folder=not is_page,
        ours=is_viewer_page if is_page else _are_pictures,
        overwrite=overwrite,
        option="--overwrite",
    )
    languages = given(options, LANGUAGES)
    check_model(options.model, **languages)
    start_backend()
    from keras_attention.visualization.attention_page import save_attention

    translator = keras_translator(options.model, **languages)
    say_missing_heads(program, translator.model)
    if is_page:
        name = name_of(options.model)
        texts = options.sentence, options.translation
        run = options.model if is_run(options.model) else None
        save_attention(output, translator, *texts, name=name, run=run, overwrite=overwrite)
        print(f"The page is {output}")
    else:
        _save_pictures(output, translator, options.sentence, options.translation, overwrite)
        print(f"The pictures are in {output}")


def _are_pictures(folder: Path) -> bool:
    """Whether a folder holds only pictures that this command wrote."""
    contents = (path.read_bytes() if path.is_file() else b"" for path in folder.iterdir())
    own = b"tEXtSoftware\0" + MAKER.encode()
    return all(picture.startswith(b"\x89PNG\r\n") and own in picture for picture in contents)


def _save_pictures(
    path: Path, translator: Any, sentence: str, translation: str | None, overwrite: bool
) -> None:
    from keras_attention.visualization.attention_entries import padded_pairs
    from keras_attention.visualization.heatmaps import attention_figures

    translation = translation or translator(sentence)
    print(translation)
    tokenizer = translator.tokenizer
    source, read, predicted = padded_pairs(tokenizer, [(sentence, translation)])
    scores = translator.model.attention_scores(source, read)
    names = (
        [piece_of(tokenizer, token, side) for token in ids[0]]
        for side, ids in (("source", source), ("target", predicted))
    )
    with atomic_folder(path, replace=overwrite) as folder:
        for name, figure in attention_figures(scores, *names).items():
            file = folder / f"{name.replace('/', '-')}.png"
            figure.savefig(file, dpi=150, metadata={"Software": MAKER})
