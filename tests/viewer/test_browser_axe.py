"""What axe-core, a checker of accessibility, finds in the viewer: nothing serious, in light and dark."""

from importlib import resources

import numpy as np
import pytest

from keras_attention_viewer import measured
from tests.viewer.entries import random_entry

pytestmark = pytest.mark.backends("torch")

STATES = [
    "heads=1&layer=1&curve=entropy&scatter=entropy,distance&word=r1&compare=head&against=1.2&beside=1",
    "view=matrix&heads=1,2&words=1&compare=step&against=0",
]


@pytest.fixture(scope="module")
def axe():
    name = "axe_playwright_python"
    pytest.importorskip(name, reason="axe-core is missing: pip install axe-playwright-python")
    return (resources.files(name) / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing_serious(visits, axe, state):
    rng = np.random.default_rng(40)
    thoughts = [{"p": 0.2 * i, "others": [["▁other", 0.1]]} for i in range(1, 6)]
    entries = [
        measured([random_entry(rng, step, alignment=[(1, 0), (2, 1)], predictions=thoughts)])[0]
        for step in (0, 10)
    ]
    page = visits.show(entries, state)
    page.locator(".thumbs canvas").first.wait_for()
    page.evaluate(axe)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.locator(f".attention-viewer[data-theme={scheme}]").wait_for()
        found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
        assert len(found["passes"]) > 20
        serious = [
            (one["id"], [node["html"] for node in one["nodes"]])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], scheme
