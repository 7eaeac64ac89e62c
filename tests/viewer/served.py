"""A real TensorBoard process on this machine, asked over HTTP."""

import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.helpers import ROOT

WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
from tensorboard.main import run_main
run_main()
"""
START_SECONDS = 120
NEEDS_PLUGIN = pytest.mark.skipif(
    "attention" not in entry_points(group="tensorboard_plugins").names,
    reason="the entry point is not installed: pip install -e .",
)


class Server:
    """Answers of a running TensorBoard; `log` is what it printed."""

    def __init__(self, address, log):
        self.address = address
        self._log = log

    @property
    def log(self):
        return self._log.read_text()

    def get(self, path, **query):
        """Status and content of a path below the address, unpacked."""
        url = f"{self.address}{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, packed, content = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, packed, content = error.code, error.headers, error.read()
        is_gzip = packed.get("Content-Encoding") == "gzip"
        return status, gzip.decompress(content) if is_gzip else content

    def attention(self, route, **query):
        """Status and content of a route of the plugin; JSON is read."""
        status, content = self.get(f"data/plugin/attention/{route}", **query)
        return status, content if route == "weights" and status == 200 else json.loads(content)

    def runs(self):
        """The runs in the plugin's index, by name."""
        status, index = self.attention("index")
        assert status == 200, index
        return {run["name"]: run for run in index["runs"]}


def until(is_true, seconds=60):
    """Waits for what a program does in its own time."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@contextlib.contextmanager
def tensorboard(folder, *arguments, environment=(), tensorflow=False):
    """Starts `tensorboard --logdir folder`, and ends it; the package is that of this checkout.

    TensorBoard imports TensorFlow, for seconds, where it can: `tensorflow` says whether it may.
    """
    log = Path(folder).parent / "tensorboard.log"
    environment = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **dict(environment)}
    program = ["-m", "tensorboard.main"] if tensorflow else ["-c", WITHOUT_TENSORFLOW]
    command = [sys.executable, *program, "--logdir", str(folder), "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=folder,
        )
    try:
        yield Server(_address(process, log), log)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _address(process, log):
    found = []

    def is_told():
        assert process.poll() is None, log.read_text()
        found.extend(re.findall(r"at (http://\S+)", log.read_text()))
        return found

    until(is_told, START_SECONDS)
    return found[0]
