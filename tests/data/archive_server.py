"""Small tar archives, and a server on 127.0.0.1."""

import contextlib
import http.server
import io
import tarfile
import threading
import time
from pathlib import Path

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


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`, the same under each address, or a folder's files; can cut, refuse and forget.

    `asked` has the path and the range of each request, `codes` the errors to answer with first, and `cuts`
    after how many bytes to hang up.
    """

    resumable, tell_length, told_length, shift = True, True, None, 0
    redirect = None
    seconds_a_byte, endless, sent = 0, False, 0

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.asked, self.cuts, self.codes = [], [], []
        self.tag = '"the-same"' if isinstance(content, Path) else None
        self.url = f"http://127.0.0.1:{self.server_port}"

    @property
    def ranges(self):
        return [asked for _, asked in self.asked]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append((self.path, asked))
        content = server.content
        if isinstance(content, Path):
            file = content / self.path.lstrip("/")
            content = file.read_bytes() if file.is_file() else None
        if server.codes or content is None:
            self.send_error(server.codes.pop(0) if server.codes else 404)
        elif server.redirect:
            self.answer(302, Location=server.redirect)
        else:
            self.send_content(content, asked)

    def send_content(self, content, asked):
        server, size = self.server, len(content)
        same = self.headers.get("If-Range") in (None, server.tag)
        start = int(asked[6:-1]) if asked and server.resumable and same else 0
        if start >= size:
            self.answer(416, Content_Range=f"bytes */{size}")
            return
        body = content[start:]
        headers = {}
        if start:
            headers["Content_Range"] = f"bytes {start + server.shift}-{size - 1}/{size}"
        if server.tell_length:
            told = len(body) if server.told_length is None else server.told_length
            headers["Content_Length"] = str(told)
        if server.tag:
            headers["ETag"] = server.tag
        self.answer(206 if start else 200, **headers)
        for byte in body if server.seconds_a_byte else ():
            self.wfile.write(bytes([byte]))
            time.sleep(server.seconds_a_byte)
        if not server.seconds_a_byte:
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)
                while server.endless:
                    self.wfile.write(body)
                    server.sent += len(body)

    def answer(self, code, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(content):
    """A `Server` of some bytes, or of the files below a folder."""
    with Server(content) as server, pytest.MonkeyPatch.context() as patch:
        for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(proxy, raising=False)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
