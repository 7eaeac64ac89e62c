"""The routes of a server, as a Starlette application."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from keras_attention.data.normalization import normalize
from keras_attention.decoding.marked import MarkedTranslator
from keras_attention.decoding.requests import WrongText
from keras_attention.decoding.translation import Translation
from keras_attention.serving.attention import (
    AttentionReader,
    NoAttention,
    Wanted,
    WrongContrast,
    check_masked,
    check_size,
    translator_masked,
    translator_without,
)
from keras_attention.serving.fields import (
    Asked,
    Limits,
    read_asked,
    read_fields,
    read_tried,
    refusal,
)
from keras_attention.serving.metrics import CONTENT_TYPE, Measured, Metrics
from keras_attention.serving.models import Directions, ServedModel
from keras_attention.serving.worker import Job, QueueFull, Texts, Worker, translate_together
from keras_attention.spec import SpecError
from keras_attention_viewer.page import STATIC as VIEWER

# The page's files.
STATIC = Path(__file__).parent / "static"
# Lines that are translated in one call: more only make the first ones wait.
MOST_TOGETHER = 128
# Lines and characters of a request that are translated before those of others have their turn.
SHARE_LINES, SHARE_CHARACTERS = 32, 1_000
# Sentences whose attention may be waited for: a page asks for one at a time.
MOST_ATTENTION = 4
# Translators without some heads, and with masked words, that are kept.
MOST_VARIANTS = 4
RETRY_SECONDS = 1
# The viewer sets sizes of its parts by style attributes. Nothing comes from another server.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# How long a stop waits for what is computed for nobody.
LAST_SECONDS = 1.0
GONE = 499  # The client has closed the connection: nobody reads this, but it is counted.


class Service:
    """Answers the requests of clients.

    `start_keras` imports Keras and its backend, for the page; None for no page.
    """

    def __init__(
        self, models: Sequence[ServedModel], limits: Limits, start_keras: Callable[[], None] | None
    ):
        self.directions = Directions(models)
        self.limits = limits
        self.metrics = Metrics(lambda: self.worker.waiting())
        self.worker = Worker(self._work, limits.waiting, MOST_TOGETHER, "translating")
        self.watcher: Worker | None = None
        # Each has an engine of its own; a page asks for the same heads again and again.
        marked = functools.partial(MarkedTranslator, is_html=True)
        self._marked = functools.lru_cache(max(len(models), MOST_VARIANTS))(marked)
        self._without = functools.lru_cache(MOST_VARIANTS)(translator_without)
        self._masked = functools.lru_cache(MOST_VARIANTS)(translator_masked)
        if start_keras is not None:
            self.watcher = Worker(AttentionReader(start_keras), MOST_ATTENTION, 1, "attention")

    def close(self) -> None:
        """End the threads, when nobody asks any more; what still computes is for nobody."""
        self.worker.close(LAST_SECONDS)
        if self.watcher is not None:
            self.watcher.close(LAST_SECONDS)

    def application(self, origins: Sequence[str] = (), hosts: Collection[str] | None = None) -> Any:
        """Return the ASGI application."""
        routes: list[Any] = [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.settings),
            Route("/health", self.health),
            Route("/metrics", self.numbers),
        ]
        if self.watcher is not None:
            routes += [
                Route("/", self.page),
                Route("/try", self.attempt, methods=["POST"]),
                Mount("/static", StaticFiles(directory=STATIC)),
                Mount("/viewer", StaticFiles(directory=VIEWER)),
            ]
        origins = [origin.lower() for origin in origins]  # as browsers say them
        middleware = [
            Middleware(
                Measured,
                metrics=self.metrics,
                paths=[route.path for route in routes if isinstance(route, Route)],
            )
        ]
        if origins:
            allowed: Any = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
            middleware.append(Middleware(CORSMiddleware, allow_origins=origins, **allowed))
        middleware.append(Middleware(KnownPages, hosts=hosts, origins=origins))
        handlers: dict[Any, Any] = {
            ClientDisconnect: _gone,
            HTTPException: _refused,
            Exception: _failed,
        }
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)

    async def translate(self, request: Request) -> Response:
        asked = read_asked(await read_fields(request, self.limits.body), self.limits)
        model = self._model(asked)
        # Lines are translated each for itself; what separates them stays.
        lines = [line for text in asked.parts for line in text[::2] if line.strip()]
        translator = self._marked(model.translator) if asked.is_html else model.translator
        texts = Texts(translator, lines, asked.alternatives + 1)
        found = await self._translated(request, texts)
        self.metrics.characters.inc(sum(map(len, asked.texts)))
        best = iter(found)
        joined = [_joined(text, best) for text in asked.parts]
        fields: dict[str, Any] = {
            "translatedText": [texts[0] for texts, *_ in joined],
            "scores": [scores for _, scores, _ in joined],
        }
        if getattr(model.translator, "break_loops", False):
            fields["hadLoop"] = [had_loop for *_, had_loop in joined]
        if asked.alternatives:
            fields["alternatives"] = [texts[1:] for texts, *_ in joined]
        if asked.source == "auto":  # Not detected, but the only one there is.
            detected = {"language": model.source, "confidence": 0.0}
            fields["detectedLanguage"] = [detected for _ in joined]
        if not asked.is_list:
            fields = {name: values[0] for name, values in fields.items()}
        return JSONResponse(fields)

    async def attempt(self, request: Request) -> Response:
        """Translate a line as the page asks, and return what the viewer reads."""
        assert self.watcher is not None
        fields = await read_fields(request, self.limits.body)
        asked, tried = read_asked(fields, self.limits), read_tried(fields, self.limits)
        model = self._model(asked)
        (text, *more) = asked.texts
        if more or not normalize(text) or len(asked.parts[0]) > 1 or asked.is_html:
            raise refusal("`q` must be one line of text.")
        wanted = Texts(model.translator, [text], asked.alternatives + 1, tried.prefix)
        content: dict[str, Any] = {"attention": None}
        shown = model.translator
        if tried.heads or tried.masked:
            ((best, *_),) = await self._translated(request, wanted._replace(n_best=1))
            content["whole"] = {"translatedText": best.text, "score": best.score}
            try:
                if tried.heads:
                    shown = await asyncio.to_thread(self._without, shown, tried.heads)
                check_masked(shown, text, tried.masked)
            except ValueError as error:
                raise refusal(str(error)) from None
            masked = await asyncio.to_thread(self._masked, shown, tried.masked)
            wanted = wanted._replace(translator=masked)
        found = await self._translated(request, wanted)
        self.metrics.characters.inc(len(text))
        texts, content["scores"], _ = _joined([text], iter(found))
        content["translatedText"], *content["alternatives"] = texts
        try:
            best = found[0][0]
            check_size(shown, text, best)
            seen = Wanted(model.name, shown, text, best, tried.masked, tried.contrast)
            answer = self._submit(self.watcher, seen)
            content["attention"], content["contrast"] = await _answered(request, answer)
        except WrongContrast as error:
            raise refusal(str(error)) from None
        except NoAttention as error:
            content["problem"] = f"There is no attention to show. {error}"
        return JSONResponse(content)

    async def languages(self, request: Request) -> Response:
        return JSONResponse(self.directions.languages())

    async def detect(self, request: Request) -> Response:
        raise refusal("This server detects no language: name the source of each request.", 501)

    async def settings(self, request: Request) -> Response:
        """Return what clients may read first."""
        models = self.directions.models
        names = {one["code"]: one["name"] for one in self.directions.languages()}
        return JSONResponse(
            {
                "alternativesLimit": min(model.most_alternatives for model in models),
                "apiKeys": False,
                "charLimit": self.limits.characters,
                "filesTranslation": False,
                "frontendTimeout": 500,
                "keyRequired": False,
                "language": {
                    side: {"code": code, "name": names[code]}
                    for side, code in (("source", models[0].source), ("target", models[0].target))
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def numbers(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def page(self, request: Request) -> Response:
        headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        return FileResponse(STATIC / "page.html", headers=headers)

    def _model(self, asked: Asked) -> ServedModel:
        try:
            model = self.directions.find(asked.source, asked.target)
        except LookupError as error:
            raise refusal(str(error.args[0])) from None
        most = model.most_alternatives
        if asked.alternatives > most:
            raise refusal(
                f"`alternatives` must be at most {most}, one less than the beam size of the model. "
                f"Received: {asked.alternatives}"
            )
        return model

    async def _translated(self, request: Request, lines: Texts) -> list[list[Translation]]:
        """Return the n best translations of each line, by the thread that translates for all."""
        found: list[list[Translation]] = []
        try:
            for share in _shares(lines.texts):
                wanted = lines._replace(texts=share)
                answer = self._submit(self.worker, wanted, len(share), has_begun=bool(found))
                found += await _answered(request, answer)
            return found
        except WrongText as error:
            raise refusal(f"A line {error.problem}") from None
        except SpecError as error:  # Not every engine forces a prefix.
            raise refusal(str(error), 501) from None

    def _work(self, jobs: Sequence[Job]) -> None:
        translate_together(jobs, self.metrics.batches.observe)

    def _submit(
        self, worker: Worker, wanted: Any, size: int = 1, has_begun: bool = False
    ) -> Future[Any]:
        try:
            return worker.submit(wanted, size, has_begun)
        except QueueFull:
            later = {"Retry-After": str(RETRY_SECONDS)}
            raise refusal("Too many requests wait: try again later.", 503, **later) from None


def _shares(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield lines in parts, so that who asks for many does not keep waiting who asks for few."""
    share: list[str] = []
    size = 0
    for text in texts:
        if share and (len(share) == SHARE_LINES or size + len(text) > SHARE_CHARACTERS):
            yield share
            share, size = [], 0
        share.append(text)
        size += len(text)
    if share:
        yield share


async def _answered(request: Request, answer: Future[Any]) -> Any:
    """Wait for an answer, which is no longer wanted if the client goes away."""
    waited = asyncio.wrap_future(answer)
    gone = asyncio.ensure_future(request.receive())  # The body was read: only the end can come.
    try:
        await asyncio.wait({waited, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not waited.done():
            raise ClientDisconnect
        return waited.result()
    finally:
        gone.cancel()
        waited.cancel()


def _joined(
    parts: Sequence[str], best: Iterator[list[Translation]]
) -> tuple[list[str], list[float], bool]:
    """Return the n best translations of a text, their scores, and whether one of its lines had a loop."""
    rows = [
        # Byte tokens can form a line break, which would be none of the source's.
        [(" ".join(one.text.splitlines()), one.score, one.had_loop) for one in next(best)]
        if index % 2 == 0 and part.strip()
        else [(part, 0.0, False)]
        for index, part in enumerate(parts)
    ]
    texts, scores = [], []
    for rank in range(max(map(len, rows))):
        chosen = [row[min(rank, len(row) - 1)] for row in rows]
        texts.append("".join(text for text, *_ in chosen))
        scores.append(sum(score for _, score, _ in chosen))
    return texts, scores, any(row[0][2] for row in rows)


async def _refused(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=GONE)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The server has failed; its log says why."}, 500)


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
        self.hosts = None if hosts is None else frozenset(map(str.lower, hosts))
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
