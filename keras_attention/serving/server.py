"""Runs an application on a socket until a signal, and ends cleanly then."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# After a signal, answers are waited for so long: some clients never read theirs.
GRACE_SECONDS = 60
# A client has so long for the head of a request, and for the rest of a body that was refused.
HEAD_SECONDS = 20.0


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
    """Let SIGTERM raise `Terminated` within this context, in place of ending the process at once.

    A terminal that is closed is a SIGTERM, too.
    """

    def stop(number: int, frame: Any) -> None:
        raise Terminated

    def hang_up(number: int, frame: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    with contextlib.ExitStack() as changed:
        changed.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
        closed = getattr(signal, "SIGHUP", None)  # A closed terminal; `nohup` has it ignored.
        if closed is not None and signal.getsignal(closed) is signal.SIG_DFL:
            changed.callback(signal.signal, closed, signal.signal(closed, hang_up))
        yield


class _Impatient(H11Protocol):
    """HTTP that closes connections on which no request is made; uvicorn does so only between two requests."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch(is_open=False)

    def _watch(self, is_open: bool = True) -> None:
        if is_open and self._is_waiting():
            self._deadline = self._deadline or self.loop.call_later(HEAD_SECONDS, self._give_up)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_waiting(self) -> bool:
        return self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE

    def _give_up(self) -> None:
        self._deadline = None
        if self._is_waiting():  # What came behind another request may be at work by now.
            self.transport.close()


def server_of(application: Any) -> uvicorn.Server:
    """Return a server of an application.

    After Ctrl-C or SIGTERM, it answers those requests that were accepted, and no more. Then it puts the
    handlers of signals back, and raises the signals that it has got again.
    """
    config = uvicorn.Config(
        application,
        http=_Impatient,  # On h11, which bounds the heads of requests.
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return uvicorn.Server(config)
