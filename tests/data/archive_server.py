"""Small tar archives, and a server on 127.0.0.1 that can cut a download short."""

import contextlib
import http.server
import io
import tarfile
import threading

import pytest


def write_archive(path, files, mode="w:gz", links=()):
    """`files`: content by member name; `links`: (name, type, link name)."""
    with tarfile.open(path, mode) as archive:
        for name, kind, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@contextlib.contextmanager
def serving(folder):
    """Serves the files below `folder`; `server.cuts` says after how many bytes to hang up."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append((self.path, self.headers.get("Range")))
            file = folder / self.path.lstrip("/")
            if not file.is_file():
                self.send_error(404)
                return
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            body = file.read_bytes()[start:]
            self.send_response(206 if start else 200)
            if start:
                size = start + len(body)
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"the-same"')
            self.end_headers()
            self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with server, pytest.MonkeyPatch.context() as patch:
        for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(proxy, raising=False)
        server.asked, server.cuts = [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
