"""The *Attention* tab of TensorBoard: what it serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard import plugin_util
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from keras_attention_viewer.codec import PLUGIN_NAME, RecordError
from keras_attention_viewer.tensorboard_data import AttentionData, NotFound

STATIC = Path(__file__).resolve().parent / "static"
CONTENT_TYPES = {".js": "text/javascript", ".css": "text/css"}
Answer = Callable[[Any], tuple[Any, str]]  # request -> content, content type


class AttentionPlugin(base_plugin.TBPlugin):
    """Serves the viewer and the attention of all runs below the log folder."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext):
        folder = Path(context.logdir).expanduser() if context.logdir else None
        self._data = AttentionData(context.data_provider, folder)

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return the routes below `/data/plugin/attention`."""
        routes: dict[str, Answer] = {
            "/index": self._index,
            "/header": self._header,
            "/weights": self._weights,
        }
        # All files that can be asked for, read once: no path is made from a request.
        for file in STATIC.iterdir():
            if file.suffix in CONTENT_TYPES:
                routes[f"/{file.name}"] = _constant(file.read_bytes(), CONTENT_TYPES[file.suffix])
        return {name: _application(answer) for name, answer in routes.items()}

    def is_active(self) -> bool:
        """TensorBoard activates the tab itself when a run has attention records."""
        return False

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="Attention")

    def _index(self, request: Any) -> tuple[Any, str]:
        return self._data.index(*_scope(request)), "application/json"

    def _header(self, request: Any) -> tuple[Any, str]:
        return self._data.header(*_entry(request)), "application/json"

    def _weights(self, request: Any) -> tuple[Any, str]:
        kind, layer = request.args.get("kind", ""), _number(request, "layer")
        blob = self._data.weights(*_entry(request), kind, layer)
        return blob, "application/octet-stream"


def _application(answer: Answer) -> Any:
    """Return a WSGI application; what cannot be served is said in JSON."""

    @wrappers.Request.application
    def application(request: Any) -> Any:
        try:
            content, content_type = answer(request)
        except NotFound as error:
            return _refusal(request, 404, error)
        except RecordError as error:
            return _refusal(request, 422, error)
        is_gzip = isinstance(content, bytes) and content[:2] == b"\x1f\x8b"
        encoding = "gzip" if is_gzip else None
        return http_util.Respond(request, content, content_type, content_encoding=encoding)

    return application


def _constant(content: bytes, content_type: str) -> Answer:
    return lambda request: (content, content_type)


def _refusal(request: Any, code: int, error: Exception) -> Any:
    return http_util.Respond(request, {"error": str(error)}, "application/json", code=code)


def _scope(request: Any) -> tuple[Any, str]:
    environ = request.environ
    return plugin_util.context(environ), plugin_util.experiment_id(environ)


def _entry(request: Any) -> tuple[Any, str, str, str, int]:
    """Scope, run, tag and step of a request."""
    run, tag = (request.args.get(name, "") for name in ("run", "tag"))
    return *_scope(request), run, tag, _number(request, "step")


def _number(request: Any, name: str) -> int:
    text = request.args.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound(f"`{name}` must be a number from 0. Received: {text!r}")
    return int(text)
