"""What the commands share that start a server: its address, and its life until a signal."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Le

from keras_attention.cli.models import light_translator
from keras_attention.cli.options import adding
from keras_attention.utils.progress import activity, say

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
