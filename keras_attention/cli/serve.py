"""`keras-attention serve MODEL ...`: translations over HTTP, with LibreTranslate's API and a page."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.cli.decoding_options import (
    GLOSSARY_HELP,
    NAMES,
    add_search_options,
    choose_backend,
    given_glossary,
)
from keras_attention.cli.models import MODEL_HELP, check_model, light_translator
from keras_attention.cli.options import NONE, Parser, adding, flag, given
from keras_attention.cli.quiet import start_backend
from keras_attention.serving.models import check_languages, paired
from keras_attention.utils.arguments import Count
from keras_attention.utils.progress import activity, say

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
        search = given(options, NAMES)
        translators = [
            served_translator(name, glossary=glossary, **search)
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


# What `keras-attention attention --serve` needs, too: a server's address, and its life until a signal.
HOST, PORT = "127.0.0.1", 5000
Port = Annotated[int, Ge(0), Le(65535)]
LOOPBACK = (HOST, "localhost", "[::1]", "::1")


def add_address_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a server's address; `host` and `port` are None if they are not given."""
    add = adding(parser)
    add("--host HOST", f"address to listen on ({HOST}: this machine alone)")
    add("--port N", f"port; 0 for any that is free ({PORT})", Port)
    add(
        "--allow-host NAME",
        "names in the Host header, as a reverse proxy passes them on, that are answered beside this "
        "machine's own (none)",
        nargs="+",
        default=[],
    )


def check_address(options: argparse.Namespace) -> None:
    """Refuse what is no name."""
    for name in options.allow_host:
        if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", name):
            raise ValueError(f"--allow-host must be names such as mt.example.org. Received: {name}")


def run_server(
    program: str,
    options: argparse.Namespace,
    make_service: Callable[[], Any],
    *,
    origins: Sequence[str] = (),
    page: str = "",
) -> None:
    """Serve until Ctrl-C or SIGTERM.

    `make_service` makes the `Service` when it is certain that there is somewhere to listen. Pages of
    `origins` may ask, too; `page` is what the address ends in, when it is said.

    Raises:
        ImportError: If the extra `serve` is not installed.
        KeyboardInterrupt: At the end.
    """
    try:
        import keras_attention.serving.app  # noqa: F401
        from keras_attention.serving.server import bound_socket, server_of, terminating, url_of
    except ModuleNotFoundError as error:
        raise ImportError(
            f"The server needs {error.name}: pip install 'keras-attention-transformer[serve]'"
        ) from None
    host = HOST if options.host is None else options.host
    port = PORT if options.port is None else options.port
    with terminating(), bound_socket(host, port) as listener:
        service = make_service()
        try:
            listener.listen()  # Who reads the next line may connect at once.
            say(f"{program}: ready on {url_of(listener)}{page}")
            is_local = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
            known = {*LOOPBACK, host, *options.allow_host}
            hosts = known if is_local or options.allow_host else None
            server_of(service.application(origins, hosts)).run(sockets=[listener])
        finally:
            service.close()


def served_translator(name: str, **options: Any) -> Any:
    """Load a model for a server, without Keras if an engine runs it."""
    with activity(f"loading {name}"):
        translator = light_translator(name, show_progress=False, **options)
    if translator.engine_for(1).name == "numba":  # NumPy for the first texts would put it off.
        fast = dataclasses.replace(translator, engine="numba", glossary=None)
        if translator.glossary is None:
            return fast
        fast(".")  # Compiles it; texts with terms are the backend's.
    return translator


def say_engines(program: str, models: Sequence[Any]) -> None:
    """Translate a text with each model, so that what must be compiled is compiled; name what translates."""
    for model in models:
        with activity(f"translating a first text with {model.name}"):
            model.translator(".")
        name, reason = model.translator.engine_for(1)
        # Numba's is the fastest, whoever asked for it.
        why = "" if name == "numba" else f" {reason}"
        say(f"{program}: {model} by {name}.{why}")
