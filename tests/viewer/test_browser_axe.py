"""What axe-core, a checker of accessibility, finds in the viewer: nothing, in light and dark."""

import numpy as np
import pytest

from keras_attention_viewer import measured
from tests.viewer.entries import random_entry
from tests.viewer.looks import expect_accessible

pytestmark = pytest.mark.backends("torch")

STATES = [
    "heads=1&layer=1&curve=entropy&scatter=entropy,distance&word=r1&compare=head&against=1.2&beside=1",
    "view=matrix&heads=1,2&words=1&compare=step&against=0",
]


@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing(visits, axe, state):
    rng = np.random.default_rng(40)
    thoughts = [{"p": 0.2 * i, "others": [["▁other", 0.1]]} for i in range(1, 6)]
    entries = [
        measured([random_entry(rng, step, alignment=[(1, 0), (2, 1)], predictions=thoughts)])[0]
        for step in (0, 10)
    ]
    page = visits.show(entries, state)
    page.locator(".thumbs canvas").first.wait_for()
    expect_accessible(page, axe)
