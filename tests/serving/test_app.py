"""The API over real sockets: its fields, its errors, its limits; what many ask at once."""

import asyncio
import contextlib
import functools
import gzip
import json
import re
import socket
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="an extra: serve")
pytest.importorskip("uvicorn", reason="an extra: serve")
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from keras_attention.serving import app, fields, server
from keras_attention.serving.app import STATIC, Service
from keras_attention.serving.fields import Limits
from keras_attention.serving.metrics import Measured
from keras_attention.serving.models import paired
from tests.serving.served import HOST, WAIT, Shouting, ask, running, shouted, translate, wait_until

pytestmark = pytest.mark.backends("torch")

LIMITS = Limits(characters=300, texts=5, lines=9, line=290, waiting=6, body=6000)
FORM = "application/x-www-form-urlencoded"


def no_keras():
    raise ImportError("Keras needs a backend that is not installed")


@pytest.fixture
def translator():
    return Shouting()


@pytest.fixture
def service(translator):
    return Service(paired(["shouting"], [translator], None), LIMITS, no_keras)


@pytest.fixture
def port(service):
    with running(service) as port:
        yield port


def parts(**values):
    """A form in parts, as browsers send it."""
    rows = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in values.items()
    ]
    return ("".join(rows) + "--x--\r\n").encode()


def test_what_looped_is_marked(port, translator):
    assert "hadLoop" not in translate(port, "a")[1]
    translator.break_loops = True
    assert translate(port, "a")[1]["hadLoop"] is False
    _, found = translate(port, ["a\n\nloop", "b", ""])
    assert found["hadLoop"] == [True, False, False] and found["translatedText"][0] == "A\n\nLOOP"


def test_all_encodings_say_the_same(port):
    form = "q=f%C3%BCr+you%26me&source=EN&target=de&alternatives=1&api_key=none"
    in_parts = parts(q="für you&me", source="en", target="de", alternatives=1)
    asked = {"q": "für you&me", "source": "en", "target": "de", "alternatives": 1, "format": "text"}
    expected = {
        "translatedText": "FÜR YOU&ME",
        "alternatives": ["FÜR YOU&ME!"],
        "scores": [-10.0, -10.25],
    }
    for answer in (
        ask(port, body=asked),
        ask(port, body=json.dumps(asked), Content_Type="application/json; charset=utf-8"),
        ask(port, body="\ufeff".encode() + json.dumps(asked).encode(), Content_Type=JSON),
        ask(
            port,
            body=json.dumps(asked, ensure_ascii=False).encode("utf-16"),
            Content_Type=f"{JSON}; charset=UTF-16",
        ),
        ask(
            port,
            body=json.dumps(asked, ensure_ascii=False).encode("latin-1"),
            Content_Type=f'{JSON}; charset="ISO-8859-1"',
        ),
        ask(
            port,
            body="q=f%FCr+you%26me&source=EN&target=de&alternatives=1",
            Content_Type=f"{FORM}; charset=windows-1252",
        ),
        ask(port, body=gzip.compress(form.encode()), Content_Type=FORM, Content_Encoding="gzip"),
        ask(port, body=zlib.compress(in_parts), Content_Type=PARTS, Content_Encoding="deflate"),
        ask(port, body=form, Content_Type=FORM),
        ask(port, body=in_parts, Content_Type='multipart/form-data; boundary="x"'),
        ask(port, f"/translate?{form}", body=""),
        ask(port, "/translate?source=en&target=de", {"q": "für you&me", "alternatives": 1}),
    ):
        assert (answer[0], answer[2]) == (200, expected)


def test_lists_and_blank_texts(port, translator):
    q = ["one", "", " \t", "three"]
    expected = {"translatedText": ["ONE", "", " \t", "THREE"]}
    scores = [[-3.0], [0], [0], [-5.0]]
    assert translate(port, q) == (200, {**expected, "scores": scores})
    status, content = translate(port, q, alternatives=2)
    assert content["translatedText"] == expected["translatedText"]
    assert content["alternatives"] == [["ONE!", "ONE!!"], [], [], ["THREE!", "THREE!!"]]
    assert content["scores"][3] == [shouted("three", rank)[1] for rank in range(3)]
    assert translator.calls == [(["one", "three"], 1), (["one", "three"], 3)]


def test_lines_are_translated_each_for_itself_and_stay_lines(port, translator):
    status, content = translate(port, "a\r\n\r\nbb\ncc\rd\n", alternatives=1)
    assert content == {
        "translatedText": "A\r\n\r\nBB\nCC\rD\n",
        "alternatives": ["A!\r\n\r\nBB!\nCC!\rD!\n"],
        "scores": [-6.0, -7.0],
    }
    assert translator.calls == [(["a", "bb", "cc", "d"], 2)]


def test_the_only_language_is_taken_for_auto_and_not_called_detected(port):
    status, content = translate(port, "a", source="auto")
    assert content["detectedLanguage"] == {"language": "en", "confidence": 0.0}
    status, content = translate(port, ["a", "b"], source="auto")
    assert content["detectedLanguage"] == [{"language": "en", "confidence": 0.0}] * 2


RIGHT = {"q": "a", "source": "en", "target": "de"}
JSON, PARTS = "application/json", "multipart/form-data; boundary=x"
HALF = b'{"q": "\\ud800", "source": "en", "target": "de"}'
HOSTILE = {
    "no JSON": (b"{", JSON, 400, "not JSON"),
    "empty": (b"", JSON, 400, "missing q"),
    "no object": (b"[1]", JSON, 400, "JSON object"),
    "deep": (b"[" * 5900, JSON, 400, "not JSON"),
    "a huge number": (b'{"q": ' + b"9" * 5000 + b"}", JSON, 400, "not JSON"),
    "Latin-1": ('{"q": "für"}'.encode("latin-1"), JSON, 400, "not UTF-8"),
    "UTF-16": (json.dumps(RIGHT).encode("utf-16"), JSON, 400, "not UTF-8|not JSON"),
    "a charset that is none": (b"{}", f"{JSON}; charset=punycode", 415, "charset must be utf-8"),
    "not the declared charset": (b"\xff{}", f"{JSON}; charset=us-ascii", 400, "not US-ASCII"),
    "a language twice": (b"q=a&source=en&target=de&target=fr", FORM, 400, "`target` twice"),
    "an object": (
        b'{"q": {"a": 1}, "source": "en", "target": "de"}',
        JSON,
        400,
        "a text, or a list of texts",
    ),
    "half of a pair as a name": (rb'{"\udbff": 1, "\udbff": 2}', JSON, 400, "says `[?]` twice"),
    "half of a pair": (HALF, JSON, 400, "half of a surrogate pair"),
    "a form in Latin-1": (b"q=f%FCr&source=en&target=de", FORM, 400, "not UTF-8"),
    "a raw form in Latin-1": (b"q=f\xfcr&source=en&target=de", FORM, 400, "not UTF-8"),
    "many fields": (b"&".join([b"q=1"] * 200), FORM, 400, "form cannot be read"),
    "no boundary": (b"--x\r\n", "multipart/form-data", 400, "form cannot be read"),
    "broken parts": (b"--y\r\n\x00", PARTS, 400, "."),
    "a file": (parts(**{'q"; filename="x': "a"}), PARTS, 400, "form cannot be read"),
    "parts in Latin-1": ('q="für"'.encode("latin-1"), PARTS, 400, "not UTF-8"),
    "another type": (b"a", "text/plain", 415, "content type"),
    "no type": (b"a", "", 415, "content type"),
    "too large": (b" " * 6001, JSON, 413, "larger than 6000 bytes"),
    "far too large": (b" " * 200_000, JSON, 413, "larger than 6000 bytes"),
}
REFUSED = {
    "no q": ({"q": None}, "missing q"),
    "an empty q": ({"q": ""}, "missing q"),
    "an empty list": ({"q": []}, "missing q"),
    "a number": ({"q": 7}, "`q` must be a text"),
    "a list in a list": ({"q": [["a"]]}, "`q` must be a text"),
    "an object": ({"q": {"a": 1}}, "`q` must be a text"),
    "no target": ({"target": None}, "missing target"),
    "no text as source": ({"source": ["en"]}, "`source` and `target` must be codes"),
    "half a character as source": ({"source": "\ud800"}, "half of a surrogate pair"),
    "no such pair": ({"target": "fr"}, "no model from 'en' to 'fr'. It translates en to de."),
    "another format": ({"format": "xml"}, "The format must be 'text' or 'html'. Received: 'xml'"),
    "half an alternative": ({"alternatives": 0.5}, "`alternatives` must be a whole number"),
    "a true alternative": ({"alternatives": True}, "`alternatives` must be a whole number"),
    "alternatives below 0": ({"alternatives": -1}, "`alternatives` must be a whole number"),
    "too many alternatives": ({"alternatives": 4}, "`alternatives` must be at most 3"),
    "too many texts": ({"q": ["a"] * 6}, "6 texts; at most 5"),
    "too many characters": ({"q": ["a" * 299, "bb"]}, "301 characters; at most 300"),
    "too many lines": ({"q": ["a\nb\n\nc\nd"] * 3}, "12 lines; at most 9"),
    "a line that is too long": ({"q": "b\n" + "a" * 291}, "291 characters in a line; at most 290"),
    "a text that is too long": ({"q": "x\nlong"}, "A line is too long: 'long'"),
}


def test_a_hostile_body_is_refused_and_the_server_goes_on(port, translator):
    for name, (body, kind, status, message) in HOSTILE.items():
        headers = {"Content-Type": kind} if kind else {}
        found, _, content = ask(port, "/translate", body, "POST", **headers)
        assert (found, list(content)) == (status, ["error"]), name
        assert re.search(message, content["error"]), name
        assert translator.calls == [], name
        assert translate(port, "a") == (200, {"translatedText": "A", "scores": [-1.0]}), name
        translator.calls.clear()


@pytest.mark.parametrize(
    "address, body, kind",
    [
        ("", "q=a&q=bb&source=en&target=de", FORM),
        ("", "q[]=a&q[]=bb&source=en&target=de", FORM),
        ("?q=a&q=bb&source=en&target=de", "", FORM),
        ("?q=a&source=en", "q=bb&target=de", FORM),
        ("?q=a", '{"q": ["bb"], "source": "en", "target": "de"}', "application/json"),
        ("", '{"q": "a", "q": "bb", "source": "en", "target": "de"}', "application/json"),
        ("", parts(q="a")[:-7] + parts(q="bb", source="en", target="de"), PARTS),  # no end between
    ],
)
def test_no_text_of_several_is_lost(port, address, body, kind):
    status, _, content = ask(port, f"/translate{address}", body, "POST", Content_Type=kind)
    assert (status, content["translatedText"]) == (200, ["A", "BB"])


def test_a_packed_body_is_unpacked_no_further_than_the_limit(port):
    body = json.dumps(RIGHT).encode()
    for packed, encoding, status in (
        (gzip.compress(body.ljust(LIMITS.body)), "gzip", 200),
        (gzip.compress(body.ljust(LIMITS.body + 1)), "gzip", 413),
        (gzip.compress(b" " * 10**7)[:5000], "gzip", 413),
        (gzip.compress(body)[:-1], "gzip", 400),
        (gzip.compress(body) * 2, "gzip", 400),
        (body, "gzip", 400),
        (body, "br", 415),
    ):
        found = ask(port, body=packed, Content_Type=JSON, Content_Encoding=encoding)
        assert found[0] == status, (encoding, found)


def test_a_wrong_field_is_refused(port):
    for name, (wrong, message) in REFUSED.items():
        status, _, content = ask(port, body={**RIGHT, **wrong})
        assert (status, list(content)) == (400, ["error"]), name
        assert message in content["error"], name


def test_limits_are_not_refused_themselves(port):
    assert translate(port, ["a" * 100, "b" * 197, "c", "d", "e"])[0] == 200
    body = json.dumps(RIGHT).ljust(LIMITS.body)
    assert ask(port, body=body, Content_Type=JSON)[0] == 200


def test_addresses_and_methods_that_do_not_exist(port):
    for path, method, status in (
        ("/none", "GET", 404),
        ("/translate/", "POST", 307),
        ("/translate", "GET", 405),
        ("/static/../app.py", "GET", 404),
        ("/static/%2e%2e/app.py", "GET", 404),
        ("/static//etc/passwd", "GET", 404),
        ("/static/", "GET", 404),
        ("/viewer/../page.py", "GET", 404),
    ):
        found, _, content = ask(port, path, method=method)
        assert found == status, path
        assert status == 307 or list(content) == ["error"], path


def raw(port, content):
    """A connection on which some bytes were sent."""
    connection = socket.create_connection((HOST, port), timeout=WAIT)
    connection.sendall(content)
    return connection


HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_what_is_no_http_is_refused_and_the_server_goes_on(port):
    for content in (b"\x16\x03\x01\x02\r\n\r\n", HEAD + b"Content-Length: -1\r\n\r\n"):
        with raw(port, content) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    with raw(port, b"GET /" + b"a" * 200_000) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert translate(port, "a")[0] == 200


def test_a_body_in_chunks_is_limited_too(port):
    with raw(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n") as connection:
        for _ in range(5):
            connection.sendall(b"800\r\n" + b" " * 0x800 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_is_declared_too_large_is_not_waited_for(port):
    with raw(port, HEAD + b"Content-Length: 6001\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        connection.sendall(b" " * 6001 + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answers = b""
        while b'"ok"' not in answers:  # The next request on the connection is answered.
            answers += connection.recv(1000)


def test_a_connection_without_a_whole_request_is_closed(service, monkeypatch):
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    sooner = functools.partial(uvicorn.Config, timeout_keep_alive=0.2)  # between requests; it is 5
    monkeypatch.setattr(uvicorn, "Config", sooner)
    refused = HEAD + b"Content-Length: 10000\r\n\r\n "
    answered = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /"
    with running(service) as port, contextlib.ExitStack() as open_together:
        for connection in [
            open_together.enter_context(raw(port, begun))
            for begun in (b"", HEAD, HEAD[:9], answered, refused)
        ]:
            while connection.recv(1000):
                pass


def test_a_request_that_does_not_end_is_given_up(port, monkeypatch):
    monkeypatch.setattr(fields, "BODY_SECONDS", 0.1)
    with raw(port, HEAD + b'Content-Length: 50\r\n\r\n{"q": ') as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def held_up(port, translator, pool, first="first"):
    """Lets a first request occupy the thread that translates."""
    translator.is_busy.clear()
    translator.may_go.clear()
    answer = pool.submit(translate, port, first)
    assert translator.is_busy.wait(WAIT)
    return answer


def test_what_arrives_together_is_one_call_and_each_gets_its_own(port, service, translator):
    q = {f"text {number}": 1 + number % 2 for number in range(6)}
    with ThreadPoolExecutor(8) as pool:
        first = held_up(port, translator, pool)
        answers = {
            text: pool.submit(translate, port, text, alternatives=n_best - 1)
            for text, n_best in q.items()
        }
        wait_until(lambda: service.worker.waiting() == 6)
        assert ask(port, "/health")[0] == 200  # meanwhile
        translator.may_go.set()
        assert first.result(WAIT)[1]["translatedText"] == "FIRST"
        for text, answer in answers.items():
            status, content = answer.result(WAIT)
            best = [shouted(text, rank) for rank in range(q[text])]
            assert [content["translatedText"], *content.get("alternatives", [])] == [
                translation for translation, _ in best
            ]
            assert content["scores"] == [score for _, score in best]
    assert [n_best for _, n_best in translator.calls] in ([1, 1, 2], [1, 2, 1])
    assert {text for texts, _ in translator.calls for text in texts} == {"first", *q}


def test_who_asks_for_much_lets_others_have_their_turn(port, service, translator, monkeypatch):
    monkeypatch.setattr(app, "SHARE_LINES", 2)
    monkeypatch.setattr(app, "SHARE_CHARACTERS", 40)
    with ThreadPoolExecutor(8) as pool:
        first = held_up(port, translator, pool, ["a\nb", "c" * 41, "d\ne\nf"])
        other = pool.submit(translate, port, "other")
        wait_until(lambda: service.worker.waiting() == 1)
        translator.may_go.set()
        assert other.result(WAIT)[1]["translatedText"] == "OTHER"
        assert first.result(WAIT)[1]["translatedText"] == ["A\nB", "C" * 41, "D\nE\nF"]
    shares = [texts for texts, _ in translator.calls]
    assert shares[0] == ["a", "b"] and "other" in shares[1]
    rest = [text for texts in shares for text in texts if text != "other"]
    assert rest == ["a", "b", "c" * 41, "d", "e", "f"]
    assert all(len({*texts} - {"other"}) <= 2 for texts in shares)


def test_a_full_queue_says_when_to_come_back_and_loses_nobody(port, service, translator):
    with ThreadPoolExecutor(8) as pool:
        first = held_up(port, translator, pool)
        waiting = [pool.submit(translate, port, f"text {number}") for number in range(6)]
        wait_until(lambda: service.worker.waiting() == LIMITS.waiting)
        status, headers, content = ask(port, body=RIGHT)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "try again later" in content["error"]
        translator.may_go.set()
        found = [answer.result(WAIT) for answer in (first, *waiting)]
    assert [content["translatedText"] for _, content in found] == [
        "FIRST",
        *(f"TEXT {number}" for number in range(6)),
    ]
    assert translate(port, "a")[0] == 200


def test_a_client_that_goes_away_is_not_waited_for(port, service, translator):
    body = json.dumps({**RIGHT, "q": "gone"}).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with ThreadPoolExecutor(8) as pool:
        first = held_up(port, translator, pool)
        left = raw(port, whole)
        wait_until(lambda: service.worker.waiting() == 1)
        other = pool.submit(translate, port, "other")
        wait_until(lambda: service.worker.waiting() == 2)
        left.close()
        with raw(port, HEAD + b"Content-Length: 50\r\n\r\n{"):
            pass  # goes away before its request ends
        answers = 'keras_attention_requests_total{path="/translate",status="499"} 2.0'
        wait_until(lambda: answers in ask(port, "/metrics")[2].decode())
        translator.may_go.set()
        assert first.result(WAIT)[0] == other.result(WAIT)[0] == 200
    assert translator.calls == [(["first"], 1), (["other"], 1)]


def test_a_failure_is_one_of_the_request_alone(port, caplog):
    status, content = translate(port, "a crash")
    assert (status, content) == (500, {"error": "The server has failed; its log says why."})
    assert translate(port, "a")[0] == 200
    assert "ArithmeticError: a crash" in caplog.text


def test_languages_settings_health_and_no_detection(port):
    assert ask(port, "/languages")[2] == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    settings = ask(port, "/frontend/settings")[2]
    assert (settings["charLimit"], settings["filesTranslation"]) == (300, False)
    assert settings["alternativesLimit"] == 3  # beams are 4
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert ask(port, "/health")[2] == {"status": "ok"}
    status, _, content = ask(port, "/detect", body={"q": "a"})
    assert (status, list(content)) == (501, ["error"])


def test_metrics_count_what_was_asked(port):
    translate(port, ["one", "three"])
    translate(port, "")
    ask(port, "/made/up/by/a/client")
    status, headers, content = ask(port, "/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }
    requests = {
        key[1:]: value for key, value in samples.items() if key[0].endswith("requests_total")
    }
    assert requests == {("/translate", "200"): 1, ("/translate", "400"): 1, ("other", "404"): 1}
    assert samples["keras_attention_characters_total",] == 8
    assert samples["keras_attention_batch_texts_sum",] == 2
    assert samples["keras_attention_batch_texts_count",] == 1
    assert samples["keras_attention_waiting",] == 0
    assert samples["keras_attention_request_seconds_count", "/translate"] == 2
    assert samples["process_resident_memory_bytes",] > 1e6


def test_names_of_others_are_refused(translator):
    """A page whose own name leads to this machine reads nothing."""
    models = paired(["shouting"], [translator], None)
    own = {"127.0.0.1", "localhost", "[::1]", "MT.example"}
    with running(Service(models, LIMITS, None), hosts=own) as port:
        for host, status in (
            ("127.0.0.1:5000", 200),
            ("LOCALHOST", 200),
            ("[::1]:80", 200),
            ("mt.example", 200),
            ("evil.example:5000", 421),
            ("127.0.0.1.evil.example", 421),
            ("", 421),
        ):
            assert ask(port, body=RIGHT, Host=host)[0] == status, host


def test_pages_of_other_servers_only_if_they_may(translator):
    origin = {"Origin": "https://a.example"}
    models = paired(["shouting"], [translator], None)
    for origins, allowed in (((), None), (("https://A.example",), "https://a.example")):
        with running(Service(models, LIMITS, None), origins) as port:
            status, headers, _ = ask(port, body=RIGHT, **origin)
            assert headers.get("Access-Control-Allow-Origin") == allowed
            assert status == (200 if origins else 403)
            assert ask(port, body="", Origin="https://b.example")[0] == 403
            assert ask(port, body=RIGHT, Origin="null")[0] == 403
            assert ask(port, body=RIGHT, Origin=f"http://{HOST}:{port}")[0] == 200
            assert ask(port, body=RIGHT, Origin=f"http://{HOST}:{port + 1}")[0] == 403
            asked = {"Access-Control-Request-Method": "POST", **origin}
            status = ask(port, method="OPTIONS", **asked)[0]
            assert status == (200 if origins else 405)
            assert ask(port, "/")[0] == ask(port, "/attention", body=RIGHT)[0] == 404  # no page


def test_the_page_asks_no_other_server_and_runs_only_its_own_script(port):
    status, headers, content = ask(port, "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy
    html = content.decode()
    assert not re.search(r"\son\w+=|<script>|javascript:", html)
    named = re.findall(r'(?:src|href)="([^"]+)"', html)
    script = (STATIC / "page.js").read_text("utf-8")
    named += re.findall(r'from "\.\./([^"]+)"', script)
    assert len(named) > 5
    for name in named:
        if not name.startswith("data:"):
            found = ask(port, f"/{name}")
            kind = {"js": "text/javascript", "css": "text/css"}[name.rpartition(".")[2]]
            assert found[0] == 200 and found[1].get_content_type() == kind, name
    for file in STATIC.iterdir():  # those of the viewer: ../viewer/test_static.py
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[\w/]*", file.read_text("utf-8")))
        assert addresses <= {"http://www.w3.org/2000/svg"}, file
        assert "innerHTML" not in file.read_text("utf-8"), file


def test_one_line_is_tried_and_what_is_missing_is_said(port, translator):
    translator.tokenizer = type("", (), {"encode": staticmethod(str.split)})
    for q in ("a\nb", " ", "\u200b", ["a", "b"]):
        status, _, content = ask(port, "/try", {**RIGHT, "q": q})
        assert (status, content["error"]) == (400, "`q` must be one line of text.")
    status, _, content = ask(port, "/try", {**RIGHT, "alternatives": 1})
    (best, score), (second, other) = shouted(RIGHT["q"]), shouted(RIGHT["q"], 1)
    assert status == 200
    assert (content["translatedText"], content["alternatives"]) == (best, [second])
    assert content["scores"] == [score, other]
    assert content["attention"] is None and "whole" not in content
    assert content["problem"].endswith("Keras needs a backend that is not installed")
    status, _, content = ask(port, "/try", {**RIGHT, "q": "a " * 140})
    assert status == 200 and "140 tokens" in content["problem"]
    assert translate(port, "a")[0] == 200


def test_what_cannot_be_tried_is_refused(service, port, translator):
    translator.model = "no spec"
    service.limits = LIMITS._replace(body=1 << 16)
    for changed, message in (
        ({"prefix": "a\nb"}, "`prefix` must be one line of at most 300 characters"),
        ({"prefix": "a" * 301}, "`prefix` must be one line of at most 300 characters"),
        ({"prefix": 7}, "`prefix` must be one line"),
        ({"prefix": "\ud800"}, "`prefix` holds half of a surrogate pair"),
        ({"heads_off": "cross.0.1"}, "as kind.layer.head, counted from 1"),
        ({"heads_off": ["cross.1.1"]}, "as kind.layer.head, counted from 1"),
        ({"heads_off": "cross.1.1 " * 1001}, "at most 1000 heads"),
        ({"heads_off": "cross.1.1"}, "model of the kind str does not show its heads"),
        ({"q": "a" * 301}, "301 characters; at most 300"),
    ):
        status, _, content = ask(port, "/try", {**RIGHT, **changed})
        assert status == 400 and message in content["error"], message
        assert translate(port, "a")[0] == 200


def test_a_prefix_is_asked_for_the_one_who_wants_it(port, service, translator):
    """Others who wait at the same time are translated without it."""
    translator.tokenizer = type("", (), {"encode": staticmethod(str.split)})
    with ThreadPoolExecutor(3) as pool:
        first = held_up(port, translator, pool)
        answers = [
            pool.submit(ask, port, "/try", {**RIGHT, "q": "b", "prefix": "Ein"}),
            pool.submit(translate, port, "c"),
        ]
        wait_until(lambda: service.worker.waiting() == 2)
        translator.may_go.set()
        assert first.result(WAIT)[0] == 200
        assert [answer.result(WAIT)[-1]["translatedText"] for answer in answers] == ["Ein B", "C"]


def test_a_clean_stop_answers_what_was_accepted(service, translator):
    with ThreadPoolExecutor(8) as pool:
        with running(service) as port:
            first = held_up(port, translator, pool)
            second = pool.submit(translate, port, "second")
            wait_until(lambda: service.worker.waiting() == 1)
            idle = raw(port, b"")
            threading.Timer(1, translator.may_go.set).start()
        assert first.result(WAIT)[1]["translatedText"] == "FIRST"
        assert second.result(WAIT)[1]["translatedText"] == "SECOND"
        assert idle.recv(9) == b""
        idle.close()
        with pytest.raises(ConnectionRefusedError):
            raw(port, b"")


def test_what_is_no_request_passes_uncounted():
    """As other ASGI servers send when they start; it has no path."""
    passed = []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    asyncio.run(Measured(app, None, ())({"type": "lifespan"}, None, None))
    assert passed == ["lifespan"]
