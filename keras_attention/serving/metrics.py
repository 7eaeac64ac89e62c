"""What a server counts, in Prometheus' text format."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The numbers of one server."""

    def __init__(self, waiting: Callable[[], int]):
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        prefix = "keras_attention"
        self.requests = Counter(
            f"{prefix}_requests", "Answered requests.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            f"{prefix}_request_seconds",
            "Time from a request's head to the end of its answer.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self.characters = Counter(
            f"{prefix}_characters", "Characters of translated texts.", registry=registry
        )
        self.batches = Histogram(
            f"{prefix}_batch_texts",
            "Texts that were translated together.",
            buckets=SIZES,
            registry=registry,
        )
        queued = Gauge(f"{prefix}_waiting", "Requests in the queue.", registry=registry)
        queued.set_function(waiting)

    def text(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        return generate_latest(self.registry)


class Measured:
    """An ASGI application whose answers are counted."""

    def __init__(self, app: Any, metrics: Metrics, paths: Collection[str]):
        self.app = app
        self.metrics = metrics
        self.paths = frozenset(paths)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":  # ours sends no other, but an ASGI server may
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self.paths else "other"
        begun = time.perf_counter()
        status = 500

        async def noting_send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        finally:
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - begun)
