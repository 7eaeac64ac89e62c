"""The command `serve` as users run it: processes on real sockets, the package's model, a client of others."""

import html
import json
import re
import signal
import socket
import sys
import threading
import urllib.error
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn", reason="an extra: serve")

from keras_attention import load_corpus
from keras_attention_light import load_translator
from tests.serving.served import HOST, WAIT, Server, ask, translate

pytestmark = pytest.mark.backends("torch")

# The command where neither Keras nor a backend can be imported.
WITHOUT_KERAS = """
import signal, sys

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which `nohup` ignores

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("keras", "tensorflow", "jax", "torch"):
            raise ImportError(f"{name} is refused")

sys.meta_path.insert(0, Refusing())
from keras_attention_light import main
main(sys.argv[1:])
"""


COMMAND = ["-c", WITHOUT_KERAS, "serve", "demo_en_de", "--port", "0"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("serve") / "log", *COMMAND, "--max-characters", "2000")
    yield made
    assert made.end() == 143, made.log.read_text()


@pytest.fixture(scope="module")
def translator():
    return load_translator("demo_en_de")


@pytest.fixture(scope="module")
def sentences():
    return list(dict.fromkeys(load_corpus("demo").test.sources()))[:60]


def test_a_client_of_libretranslate_works_unchanged(server, translator):
    libretranslatepy = pytest.importorskip("libretranslatepy", reason="an extra: dev")
    client = libretranslatepy.LibreTranslateAPI(f"http://{HOST}:{server.port}")
    text = "The dog sleeps & the woman's cat sees 5 % of it."
    assert client.translate("The dog sleeps.", "en", "de") == "Der Hund schläft."
    assert client.translate(text, "en", "de", timeout=WAIT) == translator(text)
    assert {one["code"]: one["targets"] for one in client.languages()} == {"en": ["de"], "de": []}
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.translate("Hola", "es", "de")
    assert refused.value.code == 400
    assert "en to de" in json.loads(refused.value.read())["error"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        client.detect("Hola")
    assert refused.value.code == 501


def test_many_clients_at_once_get_each_its_own(server, translator, sentences):
    """Also those that send nonsense, and those that go away, disturb nobody."""
    expected = dict(zip(sentences, translator(sentences), strict=True))
    body = b'{"q": "The dog sleeps.", "source": "en", "target": "de"}'
    head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def disturb(number):
        if number % 3 == 0:
            return ask(server.port, "/translate", b"\xff" * number, "POST")[0]
        with socket.create_connection((HOST, server.port)) as connection:
            connection.sendall(whole[: len(whole) // (number % 3)])
        return None

    with ThreadPoolExecutor(16) as pool:
        answers, others = {}, []
        for number, sentence in enumerate(sentences * 2):
            answers[number, sentence] = pool.submit(translate, server.port, sentence)
            if number % 4 == 0:
                others.append(pool.submit(disturb, number + 1))
        for (_, sentence), answer in answers.items():
            status, content = answer.result(WAIT)
            assert (status, content["translatedText"]) == (200, expected[sentence])
        assert {other.result(WAIT) for other in others} == {400, None}


HTML = [
    "The dog sleeps.",
    "The <b>dog</b> sleeps.",
    "<p>The <i>old</i> woman sees\n<a href='x'>a <u>house</u></a>.</p>\n<ul><li>The dog sleeps.<br></ul>",
    "The dog sleeps &amp; the &lt;woman&gt; sees it&#39;s house.",
    "",
    "<img src='x'>",
    "The dog sleeps.\nThe woman sees a house.",
]


def test_html_keeps_its_tags_and_entities(server, translator):
    """Without Keras: NumPy reads the attention."""
    status, content = translate(server.port, HTML, format="html", alternatives=1)
    texts = content["translatedText"]
    assert status == 200
    alone = translate(server.port, HTML[2], format="html")[1]
    assert alone["translatedText"] == texts[2]
    assert alone["scores"] == pytest.approx(content["scores"][2][:1], abs=1e-4)
    assert texts[0] == translate(server.port, HTML[0])[1]["translatedText"]
    assert texts[1] == "Der <b>Hund</b> schläft."
    inner = "Die <i>alte</i> Frau sieht <a href='x'>ein <u>Haus</u></a>."
    assert texts[2] == f"<p>{inner}</p>\n<ul><li>Der Hund schläft.<br></ul>"
    assert texts[3] == html.escape(translator(html.unescape(HTML[3])), quote=False)
    assert texts[4:6] == HTML[4:6]
    assert texts[6].split("\n") == translator(HTML[6].split("\n"))
    [other] = content["alternatives"][1]
    best = translator.translate("The dog sleeps.", n_best=2)[1]
    assert re.sub("</?b>", "", other) == best.text and other.count("b>") == 2


HOSTILE = ["\x00", "a\x00b", "\u202e\ufeff", "\U0001f9d9" * 90, "<script>", "ﷺ" * 300, "\n" * 500]


@pytest.mark.parametrize("text", [*HOSTILE, "word " * 300, "x" * 300], ids=range(9))
def test_hostile_texts_are_translated_as_by_the_translator(server, translator, text):
    status, content = translate(server.port, text)
    assert status == 200
    lines = text.split("\n")
    assert len(content["translatedText"].split("\n")) == len(lines)
    if len(lines) == 1 and text.strip():
        assert content["translatedText"] == " ".join(translator(text).splitlines())


def test_a_glossary_is_kept(tmp_path, translator):
    """Texts with its terms are the backend's, the others as ever."""
    (tmp_path / "terms").write_text("dog\tKatze\nsleeps\tschläft\n", "utf-8")
    asked = ("serve", "demo_en_de", "--port", "0", "--no-page", "--glossary", tmp_path / "terms")
    main = "import sys; from keras_attention_light import main; main(sys.argv[1:])"
    server = Server(tmp_path / "log", "-c", main, *asked)
    try:
        texts = ["The dog sleeps.", "The woman waits.", "A DOG & a cat"]
        _, content = translate(server.port, texts)
        wanted = [["Katze", "schläft"], [], ["Katze"]]
        expected = translator.translate(texts, phrases=wanted)
        assert content["translatedText"] == [best[0].text for best in expected]
        _, content = translate(server.port, "The <b>dog</b> waits.", format="html")
        assert "Katze" in content["translatedText"] and "</b>" in content["translatedText"]
    finally:
        assert server.end() == 143, server.log.read_text()


def test_without_a_backend_there_is_a_page_and_no_attention(server):
    status, headers, content = ask(server.port, "/")
    assert status == 200 and headers.get_content_type() == "text/html"
    asked = {"q": "The dog sleeps.", "source": "en", "target": "de"}
    status, _, content = ask(server.port, "/try", asked)
    assert status == 200 and content["attention"] is None
    assert content["problem"].startswith("There is no attention to show. ")
    assert content["translatedText"] == "Der Hund schläft."
    assert translate(server.port, "The dog sleeps.")[1]["translatedText"] == "Der Hund schläft."


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 143), (signal.SIGINT, 130)])
def test_a_signal_while_it_is_busy_answers_what_was_accepted(
    tmp_path, translator, sentences, number, code
):
    expected = dict(zip(sentences, translator(sentences), strict=True))
    found, is_over = [], threading.Event()

    def send(first):
        """Asks until it is refused; an answer is whole, or there is none."""
        for sentence in (sentences[first:] + sentences[:first]) * 100:
            try:
                status, content = translate(server.port, sentence)
            except ConnectionError:  # refused, or closed before an answer began
                found.append("refused")
                return
            assert (status, content["translatedText"]) == (200, expected[sentence])
            found.append("answered")
            if len(found) > 30:
                is_over.set()

    server = Server(tmp_path / "log", *COMMAND, "--no-page")
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(send, 7 * number) for number in range(8)]
        assert is_over.wait(WAIT)
        assert server.end(number) == code
        for client in clients:
            client.result(WAIT)
    assert found.count("refused") == 8
    with pytest.raises(ConnectionRefusedError):
        translate(server.port, "The dog sleeps.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["demo_en_de", "--port", "TAKEN"], "--host 127.0.0.1 --port TAKEN cannot be used"),
        (["demo_en_de", "--host", "192.0.2.1"], "cannot be used"),
        (["demo_en_de", "--languages", "en"], "--languages must be the codes of two languages"),
        (["demo_en_de", "demo_en_de"], "both translate from 'en' to 'de'"),
        (["demo_en_de", "--glossary", "none", "b"], "--glossary needs a file for each of the 1 "),
        (["demo_en_de", "--glossary", "no_such_file"], "'no_such_file' does not exist"),
        (["no_such_model"], "There is no folder 'no_such_model'"),
    ],
)
def test_what_cannot_be_served_is_refused(refused, options, message):
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        error = refused("serve", *(port if option == "TAKEN" else option for option in options))
    assert message.replace("TAKEN", port) in error
    assert "ready on" not in error


@pytest.mark.parametrize("words", ["serve demo_en_de", "attention demo_en_de --serve"])
def test_a_missing_extra_is_named(monkeypatch, refused, words):
    for name in [name for name in sys.modules if name.startswith("keras_attention.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'keras-attention-transformer[serve]'" in refused(*words.split())
