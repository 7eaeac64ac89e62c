"""`keras-attention serve MODEL ...`: translations over HTTP, with LibreTranslate's API and a page."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from keras_attention.cli.decoding_options import (
    GLOSSARY_HELP,
    add_search_options,
    choose_backend,
    given_glossary,
    given_search_options,
)
from keras_attention.cli.models import MODEL_HELP, check_model
from keras_attention.cli.options import NONE, Parser, adding, flag
from keras_attention.cli.quiet import start_backend
from keras_attention.cli.serving import (
    add_address_options,
    check_address,
    run_server,
    say_engines,
    served_translator,
)
from keras_attention.serving.models import check_languages, paired
from keras_attention.utils.arguments import Count

ORIGIN = re.compile(r"\*|https?://[^/\s]+")
# By the option: what is counted, and how much is taken.
LIMITS = {
    "max_characters": ("characters of all texts of a request", 5_000),
    "max_texts": ("texts in a request", 100),
    "max_lines": ("lines with text of a request", 500),
    "max_line": ("characters of a line, which others may have to wait for", 2_000),
    "max_waiting": ("requests that wait; more are told to come back later", 256),
    "max_bytes": ("bytes of a request", 1 << 20),
}
EXAMPLE = """
examples:
  keras-attention serve demo_en_de
  curl -d q="The dog sleeps." -d source=en -d target=de http://127.0.0.1:5000/translate
  keras-attention serve runs/to_german runs/to_english --languages en de de en --host 0.0.0.0 --no-page
"""


def main(arguments: Sequence[str], program: str) -> None:
    """Serve translations until Ctrl-C or SIGTERM."""
    options = _parser(program).parse_args(arguments)
    languages = _check(options)
    glossaries = _glossaries(options)

    def service() -> Any:
        from keras_attention.serving.app import Service
        from keras_attention.serving.fields import Limits

        limits = Limits(*(getattr(options, name) for name in LIMITS))
        given = given_search_options(options)
        translators = [
            served_translator(name, glossary=glossary, **given)
            for name, glossary in zip(options.model, glossaries, strict=True)
        ]
        models = paired(options.model, translators, languages)
        say_engines(program, models)
        return Service(models, limits, start_backend if options.page else None)

    run_server(program, options, service, origins=options.allow_origin)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="Translate over HTTP, with the API of LibreTranslate, and show translations and their "
        "attention on a page. Ctrl-C or SIGTERM ends it, after what was accepted is answered.",
        epilog=EXAMPLE,
    )
    add = adding(parser)
    add("MODEL", f"{MODEL_HELP}; several for several languages", nargs="+")
    pairs = "what each model reads and writes, such as en de (what its card says)"
    add("--languages CODE", pairs, nargs="+")
    terms = f"for each model {GLOSSARY_HELP}; {NONE} for none"
    add("--glossary FILE", terms, nargs="+", default=[])
    add_address_options(parser)
    add_search_options(parser)
    for name, (text, number) in LIMITS.items():
        add(f"{flag(name)} N", f"most {text} ({number:,})", Count, default=number)
    origins = (
        "pages of other servers that may ask, such as https://example.org, or * for all (none)"
    )
    add("--allow-origin ORIGIN", origins, nargs="+", default=[])
    add(
        "--page",
        "whether there is a page; the first visitor who translates there has Keras loaded, which its "
        "attention needs (yes)",
        action=argparse.BooleanOptionalAction,
        default=True,
    )
    return parser


def _check(options: argparse.Namespace) -> list[tuple[str, str]] | None:
    """Refuse what can be refused before a model is loaded; return the languages, if they are given."""
    check_address(options)
    for origin in options.allow_origin:
        if not ORIGIN.fullmatch(origin):
            raise ValueError(
                f"--allow-origin must be *, or origins such as https://example.org. Received: {origin}"
            )
    languages = check_languages(options.languages, len(options.model))
    choose_backend(options)
    for model in options.model:
        check_model(model)
    return languages


def _glossaries(options: argparse.Namespace) -> list[Any]:
    if not options.glossary:
        return [None] * len(options.model)
    if len(options.glossary) != len(options.model):
        raise ValueError(
            f"--glossary needs a file for each of the {len(options.model)} models, or {NONE}. Received: "
            f"{len(options.glossary)}"
        )
    found = [None if name == NONE else given_glossary(name) for name in options.glossary]
    if any(found):
        start_backend()
    return found
