"""Runs an application on a socket until a signal, and ends cleanly then."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

# After a signal, answers are waited for so long: some clients never read theirs.
GRACE_SECONDS = 60


class Terminated(KeyboardInterrupt):
    """SIGTERM has ended the server."""

    exit_code = 128 + signal.SIGTERM


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket with an address, which refuses connections until it listens."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ValueError(
            f"--host must be an address of this machine. Received: {host} ({error})"
        ) from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # A server that starts again need not wait for the connections of the one before.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ValueError(
            f"--host {host} --port {port} cannot be used: {error.strerror}. Choose another --port."
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of a socket, as a browser takes it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` within this context, in place of ending the process at once."""

    def stop(number: int, frame: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def server_of(application: Any) -> uvicorn.Server:
    """Return a server of an application.

    After Ctrl-C or SIGTERM, it answers those requests that were accepted, and no more. Then it puts the
    handlers of signals back, and raises the signals that it has got again.
    """
    config = uvicorn.Config(
        application,
        http="h11",  # It bounds the heads of requests.
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return uvicorn.Server(config)
