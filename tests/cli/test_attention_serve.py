"""`attention MODEL --serve` as users run it: one process, address, Host header, limit, end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="an extra: serve")

from tests.serving.served import WAIT, ask

pytestmark = pytest.mark.backends("torch")

ROOT = Path(__file__).resolve().parents[2]
RIGHT = {"q": "The dog sleeps.", "source": "en", "target": "de"}


def test_it_serves_the_page_until_a_signal(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-m", "keras_attention_light", "attention", "demo_en_de"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *command,
                "The dog & the cat.",
                "--serve",
                "--port",
                "0",
                "--allow-host",
                "mt.example",
            ],
            stdout=output,
            stderr=output,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    deadline = time.monotonic() + 10 * WAIT  # compiles, if the tests before have not
    while not (ready := re.search(r"ready on http://127.0.0.1:(\d+)(/\S*)\n", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    port = int(ready[1])
    assert ready[2] == "/?q=The+dog+%26+the+cat."
    status, headers, _ = ask(port, ready[2])
    assert status == 200 and headers.get_content_type() == "text/html"
    status, _, content = ask(port, "/try", RIGHT)
    assert (status, content["translatedText"]) == (200, "Der Hund schläft.")
    assert content["attention"]["index"]["runs"][0]["name"] == "demo_en_de"
    assert ask(port, "/try", {**RIGHT, "q": "a" * 1001})[0] == 400
    for host, expected in (("evil.example", 421), ("mt.example", 200), (f"localhost:{port}", 200)):
        assert ask(port, "/try", RIGHT, Host=host)[0] == expected, host
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT) == 143
    assert "Traceback" not in log.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "SENTENCE is missing. Give one, or --serve"),
        (["A dog.", "Ein Hund.", "--serve"], "TRANSLATION cannot be used with --serve"),
        (["--serve", "--output", "a.html"], "--output cannot be used with --serve"),
        (["A dog.", "--port", "7"], "--port needs --serve"),
        (["a" * 1_001, "--serve"], "at most 1,000 characters with --serve. Received: 1,001"),
        (["A dog.", "--host", "127.0.0.1"], "--host needs --serve"),
        (["A dog.", "--allow-host", "mt.example"], "--allow-host needs --serve"),
        (["--serve", "--port", "65536"], "`--port` must be an int from 0 to 65,535"),
        (["--serve", "--host", "192.0.2.1"], "--host 192.0.2.1 --port 5000 cannot be used"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options, message, tmp_path, monkeypatch, refused
):
    monkeypatch.chdir(tmp_path)
    assert message in refused("attention", "demo_en_de", *options)
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_named(monkeypatch, refused):
    monkeypatch.delitem(sys.modules, "keras_attention.serving.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    told = refused("attention", "demo_en_de", "--serve")
    assert "pip install 'keras-attention-transformer[serve]'" in told
