"""The viewer's own files: small, joinable, without other hosts and without HTML made from text."""

import re
from collections import Counter

import pytest

from keras_attention_viewer.page import STATIC, bundle

pytestmark = pytest.mark.backends("torch")

MODULES = {path.name: path.read_text("utf-8") for path in sorted(STATIC.glob("*.js"))}
TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|const|let|var|class) ([\w$]+)", re.MULTILINE
)


def test_modules_are_small_and_their_names_unique():
    assert len(MODULES) > 20
    assert [name for name, code in MODULES.items() if len(code.splitlines()) > 300] == []
    names = Counter(name for code in MODULES.values() for name in TOP_LEVEL.findall(code))
    assert [name for name, count in names.items() if count > 1] == []


def test_what_a_page_joins_are_its_modules():
    """All but TensorBoard's three, each once, with nothing left of imports and exports."""
    joined = bundle(STATIC, "page.js")
    names = TOP_LEVEL.findall(joined)
    others = {"host_tensorboard.js", "source_http.js", "index.js"}
    expected = [
        name
        for file, code in MODULES.items()
        if file not in others
        for name in TOP_LEVEL.findall(code)
    ]
    assert sorted(names) == sorted(expected)
    assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)


def test_no_other_host_and_no_html_from_text():
    """The name of SVG's namespace is no address that anything asks."""
    for name, code in [
        *MODULES.items(),
        ("viewer.css", (STATIC / "viewer.css").read_text("utf-8")),
    ]:
        assert not re.search(
            r"(https?:)?//[a-z]", code.replace("http://www.w3.org/2000/svg", "")
        ), name
        for word in "innerHTML outerHTML insertAdjacentHTML document.write eval( @import".split():
            assert word not in code, (name, word)
