"""The one-file page: what is in it, and what it refuses. Browsers open it in the tests beside this."""

import base64
import hashlib
import html
import json
import re

import numpy as np
import pytest

from keras_attention_viewer import Entry, measured, save_html, show
from keras_attention_viewer.page import bundle
from tests.viewer.entries import SOURCE, random_entry, sentence_entry

pytestmark = pytest.mark.backends("torch")


def entries(*steps, **options):
    return [random_entry(np.random.default_rng(step), step, **options) for step in steps]


def data_of(document):
    """What the page holds, as the browser reads it."""
    (text,) = re.findall(
        r'<script type="application/json" id="attention-data">(.*?)</script>', document, re.DOTALL
    )
    return json.loads(text)


def test_the_data_of_the_page_is_what_was_given(tmp_path):
    given = measured(entries(20)) + entries(5) + entries(20, target="output")
    path = save_html(tmp_path / "new" / "a.html", given, scalars={"run": {"loss": [(5, 2.5)]}})
    data = data_of(path.read_text("utf-8"))
    (run,) = data["index"]["runs"]
    assert run["name"] == "run"
    assert run["scalars"] == {"loss": [[5, 2.5]]}
    assert [(s["tag"], s["steps"]) for s in run["sentences"]] == [
        ("attention/0/reference", [5, 20]),
        ("attention/0/output", [20]),
    ]
    for tag, entry in (("attention/0/reference", given[0]), ("attention/0/output", given[2])):
        blobs = [base64.b64decode(text) for text in data["entries"]["run"][tag]["20"]]
        read = Entry.from_blobs(blobs)
        assert read.header == entry.header
        np.testing.assert_array_equal(read.weights["cross"][1], entry.weights["cross"][1])


def test_sentences_and_runs_are_told_apart(tmp_path):
    weights = {"cross": [np.full((1, 2, len(SOURCE)), 0.1)]}
    other = sentence_entry(weights, translation=["▁ja", "</s>"])
    swapped = sentence_entry({"cross": [np.full((1, 5, 2), 0.1)]}, source=["▁ja", "</s>"])
    path = save_html(tmp_path / "a.html", {"first": [other], "second": [other, swapped]})
    runs = data_of(path.read_text("utf-8"))["index"]["runs"]
    assert [(run["name"], [s["number"] for s in run["sentences"]]) for run in runs] == [
        ("first", [0]),
        ("second", [0, 1]),
    ]


def test_nothing_of_a_text_becomes_markup(tmp_path):
    source = ["</script><script>alert(1)</script>", "<!--", "</s>"]
    entry = sentence_entry({"cross": [np.full((1, 5, 3), 0.3)]}, source=source)
    document = save_html(tmp_path / "a.html", [entry], title="<b>&").read_text("utf-8")
    assert document.count("<script") == 2
    assert "alert(1)</script>" not in document
    assert "<title>&lt;b&gt;&amp;</title>" in document
    index = data_of(document)["index"]
    assert index["runs"][0]["sentences"][0]["text"] == "".join(source[:-1])


def test_the_policy_lets_this_script_run_and_no_other_host_be_asked(tmp_path):
    document = save_html(tmp_path / "a.html", entries(0)).read_text("utf-8")
    (script,) = re.findall(r'<script type="module">(.*?)</script>', document, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy
    assert not re.search(r'(src|href)="', document.split("<style>")[0])


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path):
    (tmp_path / "main.js").write_text(
        'import { b } from "./b.js";\nimport {\n  a,\n  c,\n} from "./a.js";\nb(a, c);\n'
    )
    (tmp_path / "b.js").write_text(
        'import { a } from "./a.js";\nexport function b() { return a; }\n'
    )
    (tmp_path / "a.js").write_text("export const a = 1;\nexport async function c() {}\n")
    assert bundle(tmp_path, "main.js").split() == (
        "const a = 1; async function c() {} function b() { return a; } b(a, c);".split()
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"main.js": 'import x from "./a.js";\n'}, "cannot be joined: import x"),
        ({"main.js": 'import { x } from "https://else/a.js";\n'}, "cannot be joined"),
        ({"main.js": "export { x };\n"}, "cannot be joined: export"),
        (
            {
                "main.js": 'import { a } from "./a.js";\n',
                "a.js": 'import { b } from "./main.js";\n',
            },
            "main.js -> a.js -> main.js",
        ),
    ],
)
def test_modules_that_cannot_be_joined_are_refused(tmp_path, files, message):
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    with pytest.raises(ValueError, match=message):
        bundle(tmp_path, "main.js")


def test_a_file_is_replaced_only_if_it_is_a_page_and_that_was_said(tmp_path):
    path = tmp_path / "a.html"
    save_html(path, entries(0))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="exists.*overwrite=True"):
        save_html(path, entries(1))
    assert path.read_bytes() == before
    save_html(path, entries(1), overwrite=True)
    assert path.read_bytes() != before
    edited = path.read_text("utf-8").replace("<title>", "<title>Figure 3 of my thesis: ")
    quoting = f"# Pages\n\nOurs begin with {edited[:200]}"
    for theirs in (edited, quoting, "my own page"):
        path.write_text(theirs, "utf-8")
        with pytest.raises(ValueError, match="not written by this viewer"):
            save_html(path, entries(0), overwrite=True)
        assert path.read_text("utf-8") == theirs
    with pytest.raises(ValueError, match="is a folder"):
        save_html(tmp_path, entries(0), overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]  # nothing half-written is left


def test_what_cannot_be_shown_is_refused_before_a_file_is_made(tmp_path):
    for given, message in (
        ([], "at least one entry"),
        ({}, "at least one entry"),
        (entries(3, 3), "Two entries .* step 3"),
    ):
        with pytest.raises(ValueError, match=message):
            save_html(tmp_path / "a.html", given)
    with pytest.raises(ValueError, match=r"Expected scalars of \['run'\]"):
        save_html(tmp_path / "a.html", entries(0), scalars={"else": {}})
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_the_page_in_a_frame():
    frame = show(entries(0), title="two dogs", height=500)._repr_html_()
    (source,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', frame)
    document = html.unescape(source)
    assert "<title>two dogs</title>" in document
    assert data_of(document)["index"]["runs"][0]["sentences"][0]["steps"] == [0]
    assert "height: 500px" in frame
