"""`keras-attention attention`: pictures, a page, and a server as users run it."""

import json
import re

import pytest

from keras_attention.cli.attention import MAKER
from tests.helpers import contents

pytestmark = pytest.mark.backends("torch")

LINES = ["The dog sleeps.", "A woman sees the small house."]


def test_pictures_of_attention(run, tmp_path, command, refused):
    folder = tmp_path / "pictures"
    words = ["attention", run, "The dog sleeps."]
    given = ["Der Hund", "--output", folder]
    assert command(*words, *given).out.startswith("Der Hund\n")
    names = ["cross-layer_1.png", "decoder-layer_1.png", "encoder-layer_1.png"]
    before = contents(folder)
    assert sorted(before) == names
    assert all(content.startswith(b"\x89PNG") for content in before.values())
    error = refused(*words, *given)  # the folder is taken
    assert "exists" in error and "pass --overwrite" in error
    command(*words, "Die Katze", "--output", folder, "--overwrite")
    after = contents(folder)
    assert sorted(after) == names and all(after[name] != before[name] for name in names[:2])
    (folder / "notes.txt").write_text(f"mine, about `{MAKER}`")
    before = contents(folder)
    assert "keras_attention did not write it" in refused(*words, *given, "--overwrite")
    assert contents(folder) == before


def sentence_of(page):
    """The only sentence in a page of the attention viewer."""
    text = re.search(r'id="attention-data">(.*?)</script>', page.read_text("utf-8"))[1]
    (run,) = json.loads(text)["index"]["runs"]
    (sentence,) = run["sentences"]
    return sentence


def test_a_page_of_attention(run, translator, tmp_path, command, refused):
    given, own = tmp_path / "given.html", tmp_path / "own.html"
    command("attention", run, LINES[0], "Der Hund schläft.", "--output", given)
    sentence = sentence_of(given)
    assert (sentence["text"], sentence["target_text"]) == (LINES[0], "Der Hund schläft.")
    error = refused("attention", run, LINES[0], "--output", tmp_path / "own.png")
    assert "must end in .html, or be a new folder" in error
    error = refused("attention", run, LINES[0], "--output", given)
    assert "exists" in error and "pass --overwrite" in error
    command("attention", run, LINES[0], "--output", own)
    sentence = sentence_of(own)
    assert (sentence["target"], sentence["target_text"]) == ("output", translator(LINES[0]))
    command("attention", run, LINES[1], "Ja.", "--output", own, "--overwrite")
    assert sentence_of(own)["text"] == LINES[1]


def test_the_page_without_a_name_replaces_an_earlier_one(
    run, tmp_path, monkeypatch, command, refused
):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "attention.html"
    for text in (LINES[0], LINES[1]):
        command("attention", run, text, "Ja.")
        assert sentence_of(page)["text"] == text
    page.write_text("<p>mine</p>")
    assert "keras_attention did not write it" in refused("attention", run, LINES[0], "Ja.")
    assert page.read_text() == "<p>mine</p>"


def test_it_serves_the_page_until_a_signal(tmp_path, monkeypatch):
    pytest.importorskip("uvicorn", reason="an extra: serve")
    from tests.serving.served import Server, ask

    monkeypatch.chdir(tmp_path)
    words = ["-m", "keras_attention_light", "attention", "demo_en_de", "The dog & the cat."]
    words += ["--serve", "--port", "0", "--allow-host", "mt.example"]
    server = Server(tmp_path / "log", *words)
    port = server.port
    right = {"q": "The dog sleeps.", "source": "en", "target": "de"}
    assert server.page == "/?q=The+dog+%26+the+cat."
    status, headers, _ = ask(port, server.page)
    assert status == 200 and headers.get_content_type() == "text/html"
    status, _, content = ask(port, "/try", right)
    assert (status, content["translatedText"]) == (200, "Der Hund schläft.")
    assert content["attention"]["index"]["runs"][0]["name"] == "demo_en_de"
    assert ask(port, "/try", {**right, "q": "a" * 1001})[0] == 400
    for host, expected in (("evil.example", 421), ("mt.example", 200), (f"localhost:{port}", 200)):
        assert ask(port, "/try", right, Host=host)[0] == expected, host
    assert server.end() == 143
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
        (["--serve", "--port", "65536"], "--port: must be an int from 0 to 65,535"),
        (["--serve", "--host", "192.0.2.1"], "--host 192.0.2.1 --port 5000 cannot be used"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options, message, tmp_path, monkeypatch, refused
):
    pytest.importorskip("uvicorn", reason="an extra: serve")
    monkeypatch.chdir(tmp_path)
    assert message in refused("attention", "demo_en_de", *options)
    assert not list(tmp_path.iterdir())
