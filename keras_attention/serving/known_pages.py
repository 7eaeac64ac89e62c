"""Which pages may ask a server: its own, and those that its user names."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from starlette.responses import JSONResponse


class KnownPages:
    """An ASGI application that refuses pages of other servers.

    A page whose name leads to this machine (DNS rebinding) could read what only this machine may; and any
    page could let it work, for a form is sent without asking first.

    Args:
        app: What answers the others.
        hosts: The names that this server answers to; None for any.
        origins: Other servers whose pages may ask; `"*"` for all.
    """

    def __init__(self, app: Any, hosts: Collection[str] | None, origins: Collection[str]):
        self.app = app
        self.hosts = None if hosts is None else frozenset(hosts)
        self.origins = frozenset(origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if problem := self._problem(scope) if scope["type"] == "http" else None:
            status, text = problem
            await JSONResponse({"error": text}, status)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _problem(self, scope: Any) -> tuple[int, str] | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", "").lower(), headers.get(b"origin", "")
        if self.hosts is not None and re.sub(r":\d+$", "", host) not in self.hosts:
            return 421, f"This server does not answer to the host {host!r} (--allow-host)."
        is_own = not origin or origin.lower().partition("://")[2] == host
        if scope["method"] == "POST" and not (is_own or self.origins & {"*", origin}):
            return 403, f"Pages of {origin!r} may not ask this server (--allow-origin)."
        return None
