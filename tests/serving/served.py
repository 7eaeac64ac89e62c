"""Servers on real sockets, here and in other processes; a translator that is quick and can be held up."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

from keras_attention import Translation
from keras_attention.decoding.requests import WrongText
from tests.helpers import ROOT

HOST = "127.0.0.1"
WAIT = 120  # seconds at most, on a busy machine


class Shouting:
    """Translates into capitals; its n best are numbered, its scores are those of no other text."""

    card = {"languages": ["en", "de"]}
    beam_size = 4

    def __init__(self):
        self.calls = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.is_busy = threading.Event()

    def translate(self, texts, n_best=1, unusual=None, prefixes=None):
        self.is_busy.set()
        assert self.may_go.wait(WAIT)
        self.calls.append((list(texts), n_best))
        for index, text in enumerate(texts):
            assert text.strip()
            if "long" in text:
                raise WrongText(index, f"is too long: {text!r}")
            if "crash" in text:
                raise ArithmeticError(text)
        if prefixes:
            return [
                [Translation(f"{prefix} {text.upper()}", -1.0, (7, 8), True)]
                for prefix, text in zip(prefixes, texts, strict=True)
            ]
        return [
            [
                Translation(*shouted(text, rank), (7, 8), True, had_loop="loop" in text)
                for rank in range(n_best)
            ]
            for text in texts
        ]


def shouted(text, rank=0):
    """The translation of a line, and its score."""
    return f"{text.upper()}{'!' * rank}", -len(text) - rank / 4


@contextlib.contextmanager
def running(service, origins=(), hosts=None):
    """Serves, and yields the port."""
    from keras_attention.serving.server import bound_socket, server_of

    listener = bound_socket(HOST, 0)
    port = listener.getsockname()[1]
    server = server_of(service.application(origins, hosts))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()
        service.close()


class Server:
    """A program of Python that serves; `port` and `page` are where."""

    def __init__(self, log, *words):
        self.log = log
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *words], stdout=output, stderr=output, env=environment
            )
        ready = None
        deadline = time.monotonic() + 10 * WAIT  # compiles, if the tests before have not
        while not ready:
            assert self.process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
            ready = re.search(rf"ready on http://{HOST}:(\d+)(/\S*)?\n", log.read_text())
        self.port, self.page = int(ready[1]), ready[2]

    def end(self, number=signal.SIGTERM):
        """Its exit code, after a signal; no answer wrote an error."""
        self.process.send_signal(number)
        code = self.process.wait(WAIT)
        assert "Traceback" not in self.log.read_text()
        return code


def wait_until(is_so):
    deadline = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask(port, path="/translate", body=None, method=None, **headers):
    """Status, headers and content of an answer; JSON is read."""
    connection = http.client.HTTPConnection(HOST, port, timeout=WAIT)
    try:
        if isinstance(body, dict | list):
            headers = {"Content-Type": "application/json", **headers}
            body = json.dumps(body)
        method = method or ("GET" if body is None else "POST")
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, names)
        answer = connection.getresponse()
        content = answer.read()
        if answer.headers.get_content_type() == "application/json":
            content = json.loads(content)
        return answer.status, answer.headers, content
    finally:
        connection.close()


def translate(port, q, **more):
    """Status and content of a translation."""
    status, _, content = ask(port, body={"q": q, "source": "en", "target": "de", **more})
    return status, content
